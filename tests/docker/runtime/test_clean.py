"""`gymctl clean` and `cache prune` on an engine of the test's own, among things that are somebody else's."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.own_engine import OwnEngine, own_engine
from fakes.strikes import strike

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.getuid() != 0, reason="an engine of its own needs root"),
]
LABELS = {
    "dev.gymctl.inputs": "1",
    "dev.gymctl.base": "gymctl/base:1",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[OwnEngine]:
    with own_engine() as engine:
        yield engine


@pytest.fixture
def here(tmp_path: Path, engine: OwnEngine) -> Iterator[Path]:
    yield tmp_path
    ids = engine.docker("ps", "--all", "--quiet").stdout.decode().split()
    for name in ids:
        engine.docker("rm", "--force", name)
    for name in engine.docker("images", "--quiet").stdout.decode().split():
        engine.docker("rmi", "--force", name, check=False)


def image(engine: OwnEngine, tag: str | None, content: str, labels: dict[str, str] = LABELS) -> str:
    """A tiny image; returns its id."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_text(content * 1000)
        packed = subprocess.run(["tar", "-C", folder, "-c", "."], check=True, capture_output=True).stdout
    changes = [part for key, value in labels.items() for part in ("--change", f"LABEL {key}={value}")]
    command = ["docker", "import", *changes, "--change", 'CMD ["/file"]', "-", *([tag] if tag else [])]
    environ = {**os.environ, **engine.environ}
    done = subprocess.run(command, input=packed, check=True, capture_output=True, env=environ)
    return done.stdout.decode().strip()


def left(engine: OwnEngine, folder: Path, project: str, name: str) -> None:
    """A container and a network as a killed project leaves them."""
    labels = (f"dev.gymctl.project={project}", f"dev.gymctl.folder={folder}")
    marked = [part for label in labels for part in ("--label", label)]
    engine.docker("network", "create", *marked, f"{name}_default")
    engine.docker("create", "--name", f"{name}-1", "--network", f"{name}_default", *marked, "used:1")


def gymctl(engine: OwnEngine, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **engine.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [*engine.prefix, sys.executable, "-m", "gymctl", *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done


def names(done: subprocess.CompletedProcess[str]) -> set[str]:
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return {row["name"] for row in rows}


@contextmanager
def held(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def projects(engine: OwnEngine, here: Path) -> Path:
    """One that is dead, one that just starts, notes of somebody; the folder of a killed prepare script."""
    left(engine, here, "dead", "dead")
    left(engine, here, "starting", "starting")
    parts = here / ".gymctl" / "dead" / "parts"
    parts.mkdir(parents=True)
    (parts / "weather.json").write_text("{}")
    (here / ".gymctl" / "starting").mkdir()
    (here / ".gymctl" / "starting" / "parts").mkdir()
    (here / ".gymctl" / "notes").mkdir()
    (here / "tmp" / "gymctl-build-young").mkdir(parents=True)
    prepare = here / "cache" / "gymctl" / "prepare" / ".run-killed"
    prepare.mkdir(parents=True)
    (prepare / "part.json").write_text('{"hf_token": "planted"}')
    engine.docker("create", "--name", "gymctl-prepare-killed", "used:1")
    return prepare


def test_what_is_ours_and_dead_goes_and_everything_else_stays(engine: OwnEngine, here: Path) -> None:
    image(engine, "used:1", "user's", labels={})
    image(engine, "team/base:1", "team's", labels={})
    shared = image(engine, "gymctl/resources-shared:1", "shared")
    engine.docker("tag", shared, "team/shared:1")
    image(engine, "gymctl/resources-shared:2", "shared, newer")
    image(engine, "gymctl/resources-weather:1", "old")
    nameless = image(engine, None, "nameless")
    image(engine, "gymctl/base:1", "base")
    image(engine, "gymctl/resources-weather:2", "new")
    engine.docker("create", "--name", "theirs", "team/base:1")
    engine.docker("volume", "create", "hf-cache")
    engine.docker("network", "create", "team-net")
    prepare = projects(engine, here)

    with held(here / ".gymctl" / "starting" / "lock"):
        shown = gymctl(engine, here, "clean", "--dry-run", "--json")
        going = {
            *("dead-1", "dead_default", ".gymctl/dead", "gymctl/resources-weather:1"),
            nameless.removeprefix("sha256:")[:12],
            str(prepare),
        }
        assert names(shown) == going

        asked = gymctl(engine, here, "clean")  # nobody can be asked: shown, and nothing is done
        assert "nothing was removed; --yes removes it" in asked.stderr
        assert "dead-1" in asked.stdout
        assert names(gymctl(engine, here, "clean", "--dry-run", "--json")) == names(shown)

        only = gymctl(engine, here, "clean", "dead", "--json")
        assert names(only) == {"dead-1", "dead_default", ".gymctl/dead"}

        known = gymctl(engine, here / "tmp", "clean", "starting", "--json")
        assert names(known) == set(), "the engine knows it, though this folder does not"

        done = gymctl(engine, here, "clean", "--yes")
        assert "stays" not in done.stderr
        assert names(gymctl(engine, here, "clean", "--json")) == set()

    assert not prepare.exists()
    told = engine.docker("ps", "--all", "--format", "{{.Names}}").stdout.decode().split()
    assert set(told) == {"theirs", "starting-1"}
    images = engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.decode().split()
    assert set(images) == {
        *("used:1", "team/base:1", "gymctl/resources-shared:1", "team/shared:1", "gymctl/resources-shared:2"),
        *("gymctl/base:1", "gymctl/resources-weather:2"),
    }
    networks = engine.docker("network", "ls", "--format", "{{.Name}}").stdout.decode().split()
    assert {"team-net", "starting_default"} <= set(networks)
    assert "dead_default" not in networks
    assert "hf-cache" in engine.docker("volume", "ls", "--quiet").stdout.decode()
    assert {path.name for path in (here / ".gymctl").iterdir()} == {"starting", "notes"}
    assert (here / "tmp" / "gymctl-build-young").is_dir(), "a build may just have made it"

    rest = names(gymctl(engine, here, "clean", "--all-images", "--json"))
    assert {"gymctl/resources-weather:2", "gymctl/resources-shared:2"} <= rest
    assert not {"gymctl/resources-shared:1", "team/shared:1", "team/base:1", "used:1"} & rest


@pytest.mark.parametrize(
    ("count", "numbers", "code"), [(2, (signal.SIGINT, signal.SIGINT), 130), (6, (signal.SIGTERM,), 143)]
)
def test_what_a_signal_leaves_the_next_clean_removes(
    engine: OwnEngine, here: Path, count: int, numbers: tuple[int, ...], code: int
) -> None:
    """Struck before its second container goes, and between two names of one image."""
    image(engine, "used:1", "user's", labels={})
    image(engine, "team/base:1", "team's", labels={})
    for name in ("1", "2"):
        image(engine, f"gymctl/resources-weather:{name}", name)
        engine.docker("tag", f"gymctl/resources-weather:{name}", f"gymctl/resources-rain:{name}")
    engine.docker("create", "--name", "theirs", "team/base:1")
    for project in ("dead", "gone"):
        left(engine, here, project, project)
        parts = here / ".gymctl" / project / "parts"
        parts.mkdir(parents=True)
        (parts / "weather.json").write_text("{}")
        (parts.parent / "logs").mkdir()
    (here / ".gymctl" / "notes").mkdir()
    environ = {**strike(here, "http.client.send", "DELETE /", count, *numbers), **engine.environ}
    command = [*engine.prefix, sys.executable, "-m", "gymctl", "clean", "--yes"]
    struck = subprocess.run(command, cwd=here, env=environ, capture_output=True, text=True, check=False)
    assert struck.returncode == code, struck.stderr
    assert "error: interrupted" in struck.stderr
    assert "Traceback" not in struck.stderr
    assert "removed" not in struck.stderr, "it was not through"

    again = gymctl(engine, here, "clean", "--yes")
    assert "stays" not in again.stderr
    assert names(gymctl(engine, here, "clean", "--json")) == set()
    assert engine.docker("ps", "--all", "--format", "{{.Names}}").stdout.decode().split() == ["theirs"]
    images = engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.decode().split()
    assert set(images) == {"used:1", "team/base:1", "gymctl/resources-weather:2", "gymctl/resources-rain:2"}
    assert "default" not in engine.docker("network", "ls", "--format", "{{.Name}}").stdout.decode()
    assert [path.name for path in (here / ".gymctl").iterdir()] == ["notes"]


def test_old_environments_go_and_those_of_a_running_process_stay(engine: OwnEngine, here: Path) -> None:
    envs = here / "cache" / "gymctl" / "envs"
    for name in ("old", "running", "young"):
        (envs / name).mkdir(parents=True)
        (envs / name / "file").write_bytes(b"x" * 10_000)
        then = time.time() - (0 if name == "young" else 40 * 86400)
        os.utime(envs / name, (then, then))
    server = subprocess.Popen(["sleep", "infinity"], env={**os.environ, "PYTHONPATH": str(envs / "running")})
    try:
        told = json.loads(gymctl(engine, here, "cache", "info", "--json").stdout)
        assert [(part["part"], part["entries"]) for part in told["parts"]] == [("envs", 3)]
        assert told["parts"][0]["size"] >= 30_000
        assert names(gymctl(engine, here, "cache", "prune", "--json")) == {"envs/old"}
        gymctl(engine, here, "cache", "prune", "--yes")
    finally:
        server.kill()
        server.wait()
    assert {path.name for path in envs.iterdir()} == {"running", "young"}
