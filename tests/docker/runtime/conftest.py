"""The folder of tests/integration/runtime, its servers in containers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SHARED = Path(__file__).parents[2] / "integration" / "runtime" / "conftest.py"


def _shared() -> Any:
    spec = importlib.util.spec_from_file_location("gymctl_test_folder", _SHARED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def docker(*args: str, check: bool = True) -> str:
    return subprocess.run(["docker", *args], capture_output=True, text=True, check=check).stdout


def left_of(project: str) -> list[str]:
    label = f"label=dev.gymctl.project={project}"
    containers = docker("ps", "-a", "--filter", label, "--format", "{{.Names}} {{.Status}}")
    networks = docker("network", "ls", "--filter", label, "--format", "network {{.Name}}")
    return [*containers.splitlines(), *networks.splitlines()]


class Containers:
    """What the engine says of a project."""

    def __init__(self, project: str) -> None:
        self.project = project

    def left(self) -> list[str]:
        return left_of(self.project)

    def inspect(self, server: str) -> dict[str, Any]:
        filters = (f"label=dev.gymctl.project={self.project}", f"label=dev.gymctl.server={server}")
        identity = docker("ps", "-aq", *(part for one in filters for part in ("--filter", one))).strip()
        return json.loads(docker("inspect", identity))[0]

    docker = staticmethod(docker)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Any]:
    made = _shared().Folder(tmp_path, runtime="compose")
    yield made
    made.end()
    assert left_of(made.project) == []


@pytest.fixture
def containers(folder: Any) -> Containers:
    return Containers(folder.project)
