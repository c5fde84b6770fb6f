"""scripts/ensure_docker.sh decides well: what to install where, and when to leave a machine alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gymctl.paths import bundled

SCRIPTS = bundled() / "scripts"
TOOLS = "bash env cat cut sed paste tail grep timeout dirname awk uname"


class Machine:
    """A PATH with the commands of a pretended machine; every call of `apt-get` is noted."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        for tool in TOOLS.split():
            found = next(Path(p) / tool for p in ("/usr/bin", "/bin") if (Path(p) / tool).exists())
            (self.bin / tool).symlink_to(found)
        self.command("apt-get", f'echo "apt-get $*" >>{self.calls}')
        self.user(0)

    def command(self, name: str, script: str) -> Machine:
        file = self.bin / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)
        return self

    def user(self, number: int) -> Machine:
        return self.command("id", f'[ "$1" = -u ] && echo {number} || echo somebody')

    def docker(self, *works: str) -> Machine:
        """A docker command whose subcommands in `works` succeed: version (an engine), compose, buildx."""
        cases = "".join(f'[ "$1" != {name} ] || {{ echo "1.0 x"; exit 0; }}\n' for name in works)
        return self.command("docker", cases + "exit 1")

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        source = f"source {SCRIPTS / 'ensure_docker.sh'}; {script}"
        return subprocess.run(
            [self.bin / "bash", "-c", source, "ensure_docker.sh"],
            env={"PATH": str(self.bin), "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nothing_is_done_where_everything_works(machine: Machine) -> None:
    answer = machine.docker("version", "compose", "buildx").run("main")
    assert answer.returncode == 0
    assert not machine.calls.exists()
    assert "engine" in answer.stderr


def test_check_reports_what_is_missing_and_installs_nothing(machine: Machine) -> None:
    answer = machine.docker("version").run("main --check")
    assert answer.returncode == 3
    assert not machine.calls.exists()
    assert "Compose v2 (docker compose), buildx (docker buildx)" in answer.stderr
    assert "an engine" not in answer.stderr


def test_an_unknown_system_is_told_what_to_install(machine: Machine) -> None:
    answer = machine.run("distribution() { echo other; }; main")
    assert answer.returncode == 3
    assert "install Docker Engine 20.10 or later" in answer.stderr
    assert not machine.calls.exists()


def test_a_plain_user_is_told_to_use_root(machine: Machine) -> None:
    answer = machine.user(1000).run('distribution() { echo "ubuntu 24"; }; main')
    assert answer.returncode == 3
    assert "sudo" in answer.stderr
    assert not machine.calls.exists()


@pytest.mark.parametrize(
    ("distro", "works", "packages"),
    [
        ("ubuntu 24", None, "docker.io docker-compose-v2 docker-buildx"),
        ("ubuntu 24", ("version",), "docker-compose-v2 docker-buildx"),
        ("debian 12", None, "docker.io iptables docker-cli docker-compose docker-buildx"),
        ("debian 13", (), "docker.io iptables docker-compose docker-buildx"),
        ("debian 13", ("version", "compose"), "docker-buildx"),
        ("debian 13", ("version", "compose", "buildx"), ""),
    ],
)
def test_only_what_is_missing_is_installed(
    machine: Machine, distro: str, works: tuple[str, ...] | None, packages: str
) -> None:
    if works is not None:
        machine.docker(*works)
    assert machine.run(f'packages_needed "{distro}"').stdout.split() == packages.split()


@pytest.mark.parametrize(("works_at", "code"), [(1, 0), (2, 0), (3, 1)])
def test_an_installation_that_fails_is_tried_once_more(
    machine: Machine, tmp_path: Path, works_at: int, code: int
) -> None:
    count = f"$(grep -c install {machine.calls})"
    fails = f'[ "{count}" -ge {works_at} ] || {{ echo "E: no such package"; exit 100; }}'
    machine.command("apt-get", f'echo "$*" >>{machine.calls}; case "$*" in *install*) {fails} ;; esac')
    answer = machine.run(f'SCRATCH={tmp_path}; sleep() {{ :; }}; install_packages "debian 13" iptables')
    assert answer.returncode == code
    assert ("E: no such package" in answer.stderr) == bool(code)
    assert sum("install" in call for call in machine.calls.read_text().splitlines()) == min(works_at, 2)


@pytest.mark.parametrize(
    ("release", "distro"),
    [
        ('ID=debian\nVERSION_ID="12"', "debian 12"),
        ('ID=debian\nVERSION_ID="13.1"', "debian 13"),
        ('ID=debian\nVERSION_ID="11"', "other"),
        ('ID=ubuntu\nVERSION_ID="24.04"', "ubuntu 24"),
        ('ID=linuxmint\nID_LIKE=ubuntu\nVERSION_ID="22"', "other"),
        ("ID=arch", "other"),
    ],
)
def test_systems_are_told_apart_by_their_own_name(
    machine: Machine, tmp_path: Path, release: str, distro: str
) -> None:
    file = tmp_path / "os-release"
    file.write_text(release)
    assert machine.run(f"distribution {file}").stdout.strip() == distro


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("*.sh")))
def test_every_script_is_well_formed(script: str) -> None:
    assert subprocess.run(["bash", "-n", SCRIPTS / script], capture_output=True, check=False).stderr == b""
