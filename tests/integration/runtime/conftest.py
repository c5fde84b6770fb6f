"""A project folder with tiny servers of its own, driven by the real command line, as local processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gymctl.runtime import keeper

READY = """\
from gymctl.servers import ResourcesConfig, ResourcesServer, VerifyRequest, VerifyResponse


class TinyConfig(ResourcesConfig):
    colour: str = "red"
    judge_api_key: str | None = None


class Tiny(ResourcesServer):
    config: TinyConfig

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=1.0)


app = Tiny.app()
"""

SLOW = "import time\n\ntime.sleep(60)\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Folder:
    """Where a user stands: server folders, a config, and `gymctl` to call."""

    ready_app: ClassVar[str] = READY
    slow_app: ClassVar[str] = SLOW
    path: Path
    runtime: str = "process"
    environ: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    head_port: int = field(default_factory=free_port)
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def server(self, name: str, app: str = READY, requirements: str = "", **settings: Any) -> None:
        folder = self.path / "resources_servers" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "app.py").write_text(app)
        (folder / "requirements.txt").write_text(requirements)
        block = {"entrypoint": "app.py", "domain": "other", **settings}
        self.servers[name] = {"resources_servers": {name: block}}
        (self.path / "tiny.yaml").write_text(json.dumps(self.servers))

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "gymctl", *args]

    def up_arguments(self, *args: str) -> tuple[str, ...]:
        head = f"++head_server.port={self.head_port}"
        return ("up", "tiny.yaml", "--project", self.project, "--runtime", self.runtime, head, *args)

    @property
    def project(self) -> str:
        return f"tiny-{self.path.name.strip('-_')[-30:].lower().replace('_', '-')}"

    @property
    def parts(self) -> Path:
        return (self.path / ".gymctl" / self.project / "parts").resolve()

    @property
    def state(self) -> dict[str, Any]:
        return json.loads((self.parts.parent / "project.json").read_text())

    def run(self, *args: str, timeout: float = 240, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*args),
            cwd=self.path,
            env={**os.environ, **self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def up(self, *args: str, timeout: float = 240, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.run(*self.up_arguments(*args), timeout=timeout, **environ)

    def start(self, *args: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*args),
            cwd=self.path,
            env={**os.environ, **self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def attached(self, *args: str) -> subprocess.Popen[str]:
        """`gymctl up` that is ready and follows the logs."""
        process = self.start(*self.up_arguments(*args))
        self.wait_for(lambda: self.is_ready(), process)
        return process

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return self.state["phase"] == "ready"
        return False

    def wait_for(
        self, condition: Any, process: subprocess.Popen[str] | None = None, seconds: float = 240
    ) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if process is not None and process.poll() is not None:
                pytest.fail(f"ended with {process.returncode}: {process.communicate()[0]}")
            if time.monotonic() > end:
                pytest.fail("waited for too long")
            time.sleep(0.05)

    def processes(self) -> list[str]:
        return [row.service for row in keeper.find(self.parts)]

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=60)
            process.kill()
            if process.stdout is not None:
                process.stdout.close()
        if self.runtime == "compose" or self.processes() or (self.parts.parent / "project.json").exists():
            self.run("down", self.project)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.end()
    assert made.processes() == []
