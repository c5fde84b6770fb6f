"""scripts/setup.sh: when it does nothing, and what it says where something is missing."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Checkout

INPUTS = ("pyproject.toml", "scripts/constraints.txt", "scripts/setup.sh")
OLD_PYTHON = 'case "$*" in -V) echo "Python 3.9.2" ;; *) exit 1 ;; esac'
PYTHON_WITHOUT_VENV = 'case "$*" in *ensurepip*) exit 1 ;; esac'
PYTHON_WITHOUT_ANY_VENV = 'case "$*" in *ensurepip* | "-m venv"*) exit 1 ;; esac'


@pytest.fixture(autouse=True)
def _script(checkout: Checkout) -> None:
    checkout.real(*INPUTS)


def ready(checkout: Checkout, flavour: str = "run") -> None:
    checkout.fake(checkout.folder / ".venv/bin/gymctl")
    digest = hashlib.sha256(b"".join((checkout.folder / file).read_bytes() for file in INPUTS)).hexdigest()
    (checkout.folder / f".venv/.gymctl-{flavour}").write_text(f"{digest} {checkout.folder.resolve()}\n")


@pytest.mark.parametrize("arguments", [(), ("all",)])
def test_wrong_usage_is_exit_2(checkout: Checkout, arguments: tuple[str, ...]) -> None:
    answer = checkout.run("scripts/setup.sh", *arguments)
    assert (answer.returncode, answer.stderr) == (2, "setup: usage: scripts/setup.sh run|dev\n")


def test_an_up_to_date_environment_is_left_alone_without_a_word(checkout: Checkout) -> None:
    ready(checkout)
    answer = checkout.run("scripts/setup.sh", "run")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert checkout.calls == []


@pytest.mark.parametrize("change", ["packages", "place", "flavour"])
def test_an_environment_of_other_packages_or_another_place_is_not_up_to_date(
    checkout: Checkout, change: str
) -> None:
    ready(checkout)
    if change == "packages":
        with (checkout.folder / "pyproject.toml").open("a") as file:
            file.write("# changed\n")
    if change == "place":
        checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    answer = checkout.run("scripts/setup.sh", "dev" if change == "flavour" else "run")
    assert answer.returncode == 3  # this machine has no Python to make it anew
    assert "Python 3.11 or newer is needed" in answer.stderr


def test_an_old_python_is_named_in_one_line(checkout: Checkout) -> None:
    checkout.fake(checkout.bin / "python3", OLD_PYTHON)
    answer = checkout.run("scripts/setup.sh", "run")
    assert answer.returncode == 3
    assert answer.stderr.count("\n") == 1
    assert "Python 3.9.2 was found" in answer.stderr


def test_a_plain_user_without_venv_gets_the_command_in_one_line(checkout: Checkout) -> None:
    checkout.fake(checkout.bin / "python3", PYTHON_WITHOUT_VENV)
    checkout.fake(checkout.bin / "apt-get")
    answer = checkout.run("scripts/setup.sh", "run")
    assert answer.returncode == 3
    assert answer.stderr.count("\n") == 1
    assert "sudo apt install python3-venv" in answer.stderr
    assert not [call for call in checkout.calls if call.startswith("apt-get")]


def test_root_without_venv_gets_the_package_of_the_python_in_use(checkout: Checkout) -> None:
    checkout.user(0)
    checkout.fake(checkout.bin / "python3", OLD_PYTHON)
    checkout.fake(
        checkout.bin / "python3.12", PYTHON_WITHOUT_VENV + "\n" + 'case "$*" in -m*) exit 1 ;; esac'
    )
    checkout.fake(checkout.bin / "apt-get")
    answer = checkout.run("scripts/setup.sh", "run")
    installed = [
        call.split()[-1] for call in checkout.calls if call.startswith("apt-get") and "install" in call
    ]
    assert installed == ["python3.12-venv"]
    assert answer.returncode == 1  # the pretended Python makes no environment, and that is said
    assert answer.stderr.endswith("python3.12 -m venv failed\n")


def test_an_installation_that_fails_shows_what_apt_said(checkout: Checkout) -> None:
    checkout.user(0)
    checkout.fake(checkout.bin / "python3", PYTHON_WITHOUT_VENV)
    checkout.fake(checkout.bin / "apt-get", 'echo "E: no such package" >&2; exit 100')
    answer = checkout.run("scripts/setup.sh", "run")
    assert answer.returncode == 1
    assert "E: no such package" in answer.stderr
    assert answer.stderr.endswith("setup: apt-get install python3-venv failed\n")
