"""What of the cache is old, and what stays because somebody has it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymctl.paths import benchmarks_dir
from gymctl.runtime import cache

DAY = 86400


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gymctl"


def made(folder: Path, name: str, days: float) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "file").write_bytes(b"x" * 5000)
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def old(days: float) -> dict[str, str]:
    return {one.path.name: why for one, why in cache.old(cache.entries(), days)}


def test_what_was_not_used_for_a_while_is_old_and_use_makes_it_young(folder: Path) -> None:
    made(folder, "envs/young", 3)
    ancient = made(folder, "envs/ancient", 40)
    made(folder, "releases/x-1.0", 50)
    (folder / "envs" / ".young-lock").touch()
    assert old(30) == {"ancient": "not used for 40 days", "x-1.0": "not used for 50 days"}
    assert {one.size for one in cache.entries()} == {8192}
    cache.used(ancient)
    assert old(30) == {"x-1.0": "not used for 50 days"}
    assert set(old(0)) == {"young", "x-1.0"}, "what was used within the hour stays"


def test_what_was_never_finished_goes_after_a_day_unless_somebody_holds_it(folder: Path) -> None:
    made(folder, "envs/.a.1234", 2)
    made(folder, "envs/.b.1234", 0.5)
    held = made(folder, "prepare/.run-x", 2)
    for _ in _locked(held):
        assert old(30) == {".a.1234": "never finished"}
    assert set(old(30)) == {".a.1234", ".run-x"}


def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_what_is_removed_is_gone_and_what_is_held_stays(folder: Path) -> None:
    made(folder, "envs/a", 40)
    held = made(folder, "envs/b", 40)
    one, other = cache.entries()
    assert cache.remove(one) is None
    for _ in _locked(held):
        assert cache.remove(other) == "a command uses it"
    assert [path.name for path in (folder / "envs").iterdir()] == ["b"]


def test_a_benchmark_and_the_file_that_says_it_is_whole_are_one_entry(folder: Path) -> None:
    one = made(folder, "benchmarks/abc", 40)
    (folder / "benchmarks" / "abc.json").write_text("{}")
    alone = folder / "sbom" / "x.json"
    alone.parent.mkdir()
    alone.write_text("{}")
    os.utime(alone, (1, 1))
    assert set(old(30)) == {"abc", "x.json"}
    for entry in cache.entries():
        assert cache.remove(entry) is None
    assert not one.exists()
    assert not any(path.is_file() for path in folder.rglob("*"))


def test_benchmarks_that_lie_beside_a_closed_home_are_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/root/no-such-cache")
    assert str(benchmarks_dir()) == "/var/cache/gymctl/benchmarks"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "benchmarks_dir", lambda: tmp_path / "var" / "benchmarks")
    made(tmp_path / "var", "benchmarks/abc", 40)
    made(tmp_path / "home" / "gymctl", "envs/e", 40)
    assert set(old(30)) == {"abc", "e"}
    assert {one.part for one in cache.entries()} == {"benchmarks", "envs"}
