"""Limits read from a cgroup: both versions, and where there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gymctl.runtime import inforce
from gymctl.runtime.inforce import InForce

ROOT = inforce.ROOT


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["memory.max 536870912", "cpu.max 150000 100000", "pids.max 256"],
            InForce("v2", 2**29, 1.5, 256),
        ),
        (["memory.max max", "cpu.max max 100000", "pids.max max"], InForce("v2")),
        (
            [
                "memory/memory.limit_in_bytes 2147483648",
                "cpu/cpu.cfs_quota_us 50000",
                "cpu/cpu.cfs_period_us 100000",
                "pids/pids.max 1024",
            ],
            InForce("v1", 2**31, 0.5, 1024),
        ),
        (
            [
                "memory/memory.limit_in_bytes 9223372036854771712",
                "cpu/cpu.cfs_quota_us -1",
                "cpu/cpu.cfs_period_us 100000",
                "pids/pids.max max",
            ],
            InForce("v1"),
        ),
        (["pids.max 7"], InForce("v2", pids=7)),
        ([], InForce()),
    ],
)
def test_both_versions_are_read(lines: list[str], expected: InForce) -> None:
    assert inforce.parsed("".join(f"{ROOT}/{line}\n" for line in lines) + "noise\n") == expected


def test_the_scripts_for_shell_and_python_say_the_same_and_end_well() -> None:
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in (["sh", "-c", inforce.SCRIPT], [sys.executable, "-c", inforce.PYTHON_SCRIPT])
    ]
    assert inforce.parsed(said[0]) == inforce.parsed(said[1])


def test_a_limit_of_this_process_holds_here() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\n"
        "from gymctl.runtime import inforce; print(inforce.here().memory_bytes)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 0 < int(told) <= 2**33
