"""Two programs with one command line: NeMo Gym in a container of its family's image, and gymctl here.

with gymctl_world(folder, search_dir) as world:
    world.run("gym", "eval", "run", …)      # in the folder; the exit code and what was written
    image = world.image                     # of an image of the family, for the other one
with nemo_gym_world(folder, image) as world: ...
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 600


@dataclass(frozen=True, slots=True)
class World:
    folder: Path
    prefix: tuple[str, ...]
    """Goes before the words of a command."""
    image: str
    """Where NeMo Gym's mcqa runs, or all of it."""

    def run(self, name: str, *command: str) -> int:
        """The exit code; both streams are kept as `<name>.out` and `<name>.err` in the folder."""
        with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as err:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            return subprocess.run(
                [*self.prefix, *command],
                cwd=self.folder,
                env={**os.environ, "PATH": path},
                stdout=out,
                stderr=err,
                timeout=600,
                check=False,
            ).returncode


@contextlib.contextmanager
def gymctl_world(
    folder: Path, search_dir: Path, project: str, overrides: Sequence[str] = ()
) -> Iterator[World]:
    """`gymctl up` for as long as the context is open."""
    program = (sys.executable, "-m", "gymctl")
    arguments = ("--config", "side.yaml", "--search-dir", str(search_dir), "--project", project, *overrides)
    try:
        _checked([*program, "up", "--detach", *arguments], folder)
        filters = [f"label=dev.gymctl.project={project}", "label=dev.gymctl.server=mcqa"]
        flags = [part for one in filters for part in ("--filter", one)]
        image = _checked(["docker", "ps", *flags, "--format", "{{.Image}}"], folder).strip()
        yield World(folder, (), image)
    finally:
        subprocess.run([*program, "down", project], cwd=folder, capture_output=True, check=False)


@contextlib.contextmanager
def nemo_gym_world(folder: Path, image: str, config: str = "side.yaml") -> Iterator[World]:
    """`gym env start` in a container on the host's network, which sees the folder under its own path."""
    name = f"gymctl-peer-{os.getpid()}"
    start = [
        *("docker", "run", "--detach", "--name", name, "--network", "host", "--init", "--shm-size", "1g"),
        *(
            "--user",
            f"{os.getuid()}:{os.getgid()}",
            "--volume",
            f"{folder}:{folder}",
            "--workdir",
            str(folder),
        ),
        *(image, "gym", "env", "start", f"+config_paths=[{config}]", f"++uv_venv_dir={folder}/venvs"),
        "++model_endpoint_readiness_timeout_seconds=0",
    ]
    try:
        _checked(start, folder)
        _await_ready(name)
        yield World(folder, ("docker", "exec", "--workdir", str(folder), name), image)
    finally:
        log = subprocess.run(["docker", "logs", name], capture_output=True, check=False)
        (folder / "servers.log").write_bytes(log.stdout + log.stderr)
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await_ready(name: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        log = subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=False)
        if re.search(r"All (\d+) / \1 servers ready", log.stdout + log.stderr):
            return
        state = subprocess.run(
            ["docker", "inspect", "--format", "{{.State.Running}}", name],
            capture_output=True,
            text=True,
            check=False,
        )
        if state.stdout.strip() != "true":
            raise RuntimeError(f"NeMo Gym ended before it was ready:\n{(log.stdout + log.stderr)[-3000:]}")
        time.sleep(2)
    raise TimeoutError(f"NeMo Gym was not ready after {START_SECONDS} s")


def _checked(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"`{' '.join(command)}` ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout
