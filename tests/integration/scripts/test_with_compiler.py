"""scripts/with_compiler.sh beside stand-ins for apt-get and dpkg-query: what it asks of them, and when."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "with_compiler.sh"
INSTALLER = """#!/bin/sh
[ -e "$STATE/gcc" ] && { echo installed; exit 0; }
echo "error: Failed to build \\`pycosat==0.6.6\\`" >&2
exit 2
"""
APT = """#!/bin/sh
echo "apt-get $*" >>"$STATE/log"
case " $* " in
    *" install "*) [ -e "$STATE/empty" ] || touch "$STATE/gcc" ;;
    *" purge "*) rm -f "$STATE/gcc" ;;
esac
"""
DPKG = """#!/bin/sh
printf '%s\\n' bash
[ ! -e "$STATE/gcc" ] || printf '%s\\n' gcc libgomp1
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    for name, text in {"installer": INSTALLER, "apt-get": APT, "dpkg-query": DPKG}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(tools: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "STATE": str(tools)}
    return subprocess.run(
        ["sh", str(SCRIPT), *command], env=environ, capture_output=True, text=True, check=False
    )


def asked(tools: Path) -> str:
    log = tools / "log"
    return log.read_text() if log.exists() else ""


def test_a_command_that_works_is_all_that_runs(tools: Path) -> None:
    (tools / "gcc").touch()
    done = run(tools, "installer")
    assert (done.returncode, done.stdout, asked(tools)) == (0, "installed\n", "")


def test_a_package_without_a_wheel_is_compiled_and_the_compilers_go(tools: Path) -> None:
    done = run(tools, "installer")
    assert (done.returncode, done.stdout) == (0, "installed\n"), done.stderr
    assert " gcc " in asked(tools)
    [purge] = [line for line in asked(tools).splitlines() if " purge " in line]
    assert purge.endswith(" purge -y gcc"), "what compiled code is linked with stays"
    assert not (tools / "gcc").exists()


def test_another_failure_is_passed_on_without_a_second_attempt(tools: Path) -> None:
    done = run(tools, "sh", "-c", "echo no such package >&2; exit 3")
    assert (done.returncode, asked(tools)) == (3, "")
    assert "no such package" in done.stderr


def test_a_package_that_does_not_compile_either_keeps_its_exit_code(tools: Path) -> None:
    (tools / "empty").touch()
    done = run(tools, "installer")
    assert done.returncode == 2
    assert done.stderr.count("Failed to build") == 2
