"""How local processes end: signals, deaths, and who outlives whom."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.program import processes_below
from fakes.secrets import is_gone

from gymctl.runtime import keeper

if TYPE_CHECKING:
    from conftest import Folder

TENACIOUS = """\
import pathlib, signal, time

here = pathlib.Path(__file__).parent

def stop(number, frame):
    (here / "told").touch()
    while not (here / "may_go").exists():
        time.sleep(0.02)
    raise SystemExit

signal.signal(signal.SIGTERM, stop)
(here / "listens").touch()
time.sleep(600)
"""
"""A server that is never ready, and takes its time when it is told to end."""


def pid_of(folder: Folder, service: str) -> int:
    return next(row.pid for row in keeper.find(folder.parts) if row.service == service)


def finished(process: subprocess.Popen[str], seconds: float = 60) -> str:
    return process.communicate(timeout=seconds)[0]


@pytest.mark.parametrize(
    ("numbers", "code"),
    [([signal.SIGTERM], 143), ([signal.SIGHUP, signal.SIGHUP], 129), ([signal.SIGINT, signal.SIGINT], 130)],
)
def test_a_signal_during_start_leaves_nothing(folder: Folder, numbers: list[int], code: int) -> None:
    folder.server("tiny")
    folder.server("slow", TENACIOUS)
    server = folder.path / "resources_servers" / "slow"
    process = folder.start(*folder.up_arguments())
    folder.wait_for((server / "listens").exists, process)
    first, *more = numbers
    process.send_signal(first)
    folder.wait_for((server / "told").exists, process)  # the taking down has begun and is not over
    for number in more:
        process.send_signal(number)
    (server / "may_go").touch()
    output = finished(process)
    assert process.returncode == code, output
    assert folder.processes() == []
    is_gone(folder)


def test_ctrl_c_ends_an_attached_project(folder: Folder) -> None:
    folder.server("tiny")
    process = folder.attached()
    process.send_signal(signal.SIGINT)
    output = finished(process)
    assert process.returncode == 130
    assert "stopped and removed 2 processes" in output
    assert folder.processes() == []
    is_gone(folder)


def test_down_from_another_terminal_ends_an_attached_project(folder: Folder) -> None:
    folder.server("tiny")
    process = folder.attached()
    assert folder.run("down").returncode == 0
    output = finished(process)
    assert process.returncode == 0, output
    assert "taken down by another command" in output
    is_gone(folder)


def test_the_death_of_a_server_is_noticed_at_once(folder: Folder) -> None:
    folder.server("tiny")
    process = folder.attached()
    os.kill(pid_of(folder, "tiny"), signal.SIGKILL)
    output = finished(process)
    assert process.returncode == 5
    assert "`tiny` stopped (exit 137, killed by signal 9)" in output
    assert "listens on" in output
    assert folder.processes() == []


def test_nothing_outlives_a_gymctl_that_is_killed(folder: Folder) -> None:
    folder.server("tiny")
    process = folder.attached()
    assert sorted(folder.processes()) == ["head", "tiny"]
    process.kill()
    folder.wait_for(lambda: not folder.processes())
    doctor = folder.run("doctor")
    assert f"{folder.project} ended without `down`" in doctor.stdout
    assert folder.run("down").returncode == 0
    is_gone(folder)


def test_a_detached_project_outlives_its_starter(folder: Folder) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    time.sleep(1)
    assert sorted(folder.processes()) == ["head", "tiny"]


def test_ctrl_c_while_packages_are_installed_leaves_no_half_environment(folder: Folder) -> None:
    cache = folder.path / "cache"
    uv_cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    direct = ",".join([os.environ.get("NO_PROXY") or os.environ.get("no_proxy", ""), "127.0.0.1"])
    folder.environ = {"XDG_CACHE_HOME": str(cache), "UV_CACHE_DIR": uv_cache, "NO_PROXY": direct}
    envs = cache / "gymctl" / "envs"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wheel = f"http://127.0.0.1:{silent.getsockname()[1]}/slow-1-py3-none-any.whl"
        folder.server("tiny", requirements=f"slow @ {wheel}\n")
        process = folder.start(*folder.up_arguments())
        silent.settimeout(90)
        connection, _ = silent.accept()
        with connection:  # uv waits for a package that does not come
            assert any(envs.glob(".*/bin/python"))
            folder.wait_for(lambda: any(envs.glob("[!.]*")), process)
            process.send_signal(signal.SIGINT)
            output = finished(process)
    assert process.returncode == 130, output
    found = [path.name for path in envs.iterdir() if not path.name.endswith("-lock")]
    assert len(found) == 1 and not found[0].startswith("."), "that of the head was whole before"
    assert processes_below(envs) == []
