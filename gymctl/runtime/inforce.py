"""Limits that hold where a server runs, read from its cgroup: memory, CPU time, number of processes.

What was asked for and what holds may differ: an engine drops what its kernel cannot do. Both versions of the
kernel's cgroups are read (docs.kernel.org: admin-guide/cgroup-v1 and cgroup-v2).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

N = TypeVar("N", int, float)

ROOT = "/sys/fs/cgroup"
_V2 = ("memory.max", "cpu.max", "pids.max")
_V1 = (
    "memory/memory.limit_in_bytes",
    "cpu/cpu.cfs_quota_us",
    "cpu/cpu.cfs_period_us",
    "pids/pids.max",
)
_NO_LIMIT = 2**62
"""cgroup v1 says a number near 2^63 where there is none."""
_FILES = tuple(f"{ROOT}/{name}" for name in (*_V2, *_V1))
SCRIPT = f"for f in {' '.join(_FILES)}; do if read -r v < $f; then echo $f $v; fi; done 2>/dev/null; true"
"""For `sh`, inside a container, which sees its own cgroup at the root: file and value on each line."""
PYTHON_SCRIPT = f"""
for name in {_FILES!r}:
    try:
        print(name, open(name).readline().strip())
    except OSError:
        pass
"""
"""The same for images without a shell."""


@dataclass(frozen=True, slots=True)
class InForce:
    """None: no limit. `cgroup` None: nothing could be read."""

    cgroup: str | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None


def parsed(output: str) -> InForce:
    """What SCRIPT printed."""
    values: dict[str, str] = {}
    for line in output.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith(f"{ROOT}/"):
            values[name.removeprefix(f"{ROOT}/")] = value.strip()
    return of_files(values)


def of_files(values: Mapping[str, str]) -> InForce:
    """By name of the file, its first line."""
    if any(name in values for name in _V2):
        quota, _, period = values.get("cpu.max", "max").partition(" ")
        return InForce(
            "v2", _number(values.get("memory.max")), _cpus(quota, period), _number(values.get("pids.max"))
        )
    memory, quota, period, pids = (values.get(name) for name in _V1)
    if memory is quota is pids is None:
        return InForce()
    return InForce("v1", _number(memory), _cpus(quota, period), _number(pids))


def here() -> InForce:
    """What holds for this process and its children: its cgroups up to the root, and its own limits."""
    found = [of_files(values) for values in _own_groups()]
    memory = [one.memory_bytes for one in found] + [_rlimit(resource.RLIMIT_AS)]
    pids = [one.pids for one in found] + [_rlimit(resource.RLIMIT_NPROC)]
    affinity = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None
    is_all = affinity is None or affinity >= (os.cpu_count() or 1)
    cpus = [one.cpus for one in found] + [None if is_all else affinity]
    version = next((one.cgroup for one in found if one.cgroup), None)
    return InForce(version, _least(memory), _least(cpus), _least(pids))


def _own_groups() -> list[dict[str, str]]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[dict[str, str]] = []
    for line in lines:
        _, controllers, place = line.split(":", 2)
        names = _V2 if not controllers else [name for name in _V1 if _is_of(name, controllers)]
        for folder in (Path(place), *Path(place).parents):
            found.append({name: text for name in names if (text := _read(name, folder, controllers))})
    return found


def _is_of(name: str, controllers: str) -> bool:
    return name.partition("/")[0] in controllers.split(",")


def _read(name: str, folder: Path, controllers: str) -> str | None:
    inside = folder.as_posix().strip("/")
    if controllers:
        controller, _, file = name.partition("/")
        path = Path(ROOT, controller, inside, file)
    else:
        path = Path(ROOT, inside, name)
    try:
        return path.read_text().partition("\n")[0]
    except OSError:
        return None


def _rlimit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _least(values: list[N | None]) -> N | None:
    return min((value for value in values if value is not None), default=None)


def _cpus(quota: str | None, period: str | None) -> float | None:
    allowed, each = _number(quota), _number(period)
    return None if not allowed or not each or allowed < 0 else round(allowed / each, 3)


def _number(text: str | None) -> int | None:
    try:
        number = int(text or "")
    except ValueError:  # `max`
        return None
    return None if number >= _NO_LIMIT else number
