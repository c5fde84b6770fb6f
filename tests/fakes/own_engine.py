"""A Docker engine of a test's own, with a network of its own, that can be restarted without hurting others.

    with own_engine(images) as engine:          # root on Linux, with dockerd
        engine.restart()

Commands reach it by `engine.environ`; what dials its published ports starts with `engine.prefix`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PATIENCE = 60.0
needs_own_engine = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(name) is None for name in ("dockerd", "unshare", "nsenter")),
    reason="an engine of its own needs root and dockerd",
)


@dataclass
class OwnEngine:
    """One dockerd; its networks end at a network namespace that `holder` keeps open."""

    folder: Path
    holder: subprocess.Popen[bytes]
    has_containerd_store: bool = False
    daemon: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def prefix(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    @property
    def environ(self) -> dict[str, str]:
        return {"DOCKER_HOST": f"unix://{self.folder}/sock"}

    def start(self) -> None:
        """Returns when it answers."""
        features = {"features": {"containerd-snapshotter": True}} if self.has_containerd_store else {}
        settings = self.folder / "daemon.json"
        settings.write_text(json.dumps({"userland-proxy": False, **features}))
        places = {
            "config-file": settings,
            "data-root": self.folder / "data",
            "exec-root": self.folder / "exec",
            "pidfile": self.folder / "pid",
        }
        options = [f"--{name}={path}" for name, path in places.items()]
        with (self.folder / "log").open("ab") as log:
            command = [*self.prefix, "dockerd", *options, "-H", self.environ["DOCKER_HOST"]]
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + PATIENCE
        while self.docker("version", check=False).returncode:
            assert self.daemon.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < end, "dockerd does not answer"
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM) -> None:
        daemon, self.daemon = self.daemon, None
        if daemon is not None:
            daemon.send_signal(number)
            daemon.wait(timeout=PATIENCE)
        with suppress(FileNotFoundError):
            (self.folder / "pid").unlink()

    def restart(self) -> None:
        self.stop()
        self.start()

    def docker(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        environ = {**os.environ, **self.environ}
        return subprocess.run(["docker", *arguments], env=environ, capture_output=True, check=check)

    def load(self, images: Iterable[str]) -> None:
        """Copy images from the engine that the test runs on."""
        with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as saved:
            environ = {**os.environ, **self.environ}
            subprocess.run(
                ["docker", "load"], stdin=saved.stdout, env=environ, check=True, capture_output=True
            )


@contextmanager
def own_engine(images: Collection[str] = (), *, has_containerd_store: bool = False) -> Iterator[OwnEngine]:
    folder = Path(tempfile.mkdtemp(prefix="gymctl-engine-"))
    # What enters the namespace before it is made would be in that of the machine, with its networks.
    hold = "ip link set lo up && echo up && exec sleep infinity"
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", hold], stdout=subprocess.PIPE)
    engine = OwnEngine(folder, holder, has_containerd_store)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        engine.start()
        if images:
            engine.load(images)
        yield engine
    finally:
        engine.stop()
        # A daemon that was killed leaves its data folder mounted on itself.
        subprocess.run(["umount", "--lazy", str(folder / "data")], capture_output=True, check=False)
        holder.kill()
        holder.communicate()
        shutil.rmtree(folder, ignore_errors=True)
