"""What the llama.cpp process is started with."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _beside(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"llama_cpp_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


llama_process = _beside("llama_process")


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("odd", 8),
        (None, 8),
    ],
)
def test_a_cpu_quota_limits_the_cores(monkeypatch: pytest.MonkeyPatch, quota: str | None, expected: int):
    def read(self: Path) -> str:
        if quota is None:
            raise FileNotFoundError(str(self))
        return quota

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert llama_process.usable_cores() == expected


def test_waiting_threads_sleep(tmp_path: Path):
    given = llama_process.environment(3, tmp_path)
    assert (given["OMP_NUM_THREADS"], given["OMP_WAIT_POLICY"]) == ("3", "PASSIVE")


def test_without_a_system_openmp_the_packaged_one_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> None:
        raise OSError(name)

    library = tmp_path / "site/pykdtree.libs/libgomp-0a1b.so.1.0.0"
    library.parent.mkdir(parents=True)
    library.touch()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(llama_process.ctypes, "CDLL", absent)
    monkeypatch.setattr(llama_process.sysconfig, "get_path", lambda name: str(tmp_path / "site"))
    given = llama_process.environment(1, scratch)
    assert given["LD_LIBRARY_PATH"].split(os.pathsep)[0] == str(scratch)
    assert (scratch / "libgomp.so.1").resolve() == library


def test_settings_are_one_line():
    settings = llama_process.Settings("/m\n.gguf", 2, 256, 4, "key")
    assert settings.line().count(b"\n") == 1
    assert json.loads(settings.line())["context"] == 256
