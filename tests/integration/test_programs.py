"""Long commands stream their lines, and are gone with their children when the caller is cancelled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gymctl import programs
from gymctl.errors import PrerequisiteError
from gymctl.programs import run_command


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def gone(pid: int, within: float = 20.0) -> bool:
    for _ in range(int(within / 0.02)):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def started(script: str, folder: Path) -> tuple[asyncio.Task[programs.Finished], int]:
    """Run `script`, which writes its child's pid into $PIDFILE, and wait until it has."""
    file = folder / "pid"
    running = asyncio.create_task(run_command(("sh", "-c", script), environ={"PIDFILE": str(file)}))
    for _ in range(6000):
        if pid := _read(file).strip():
            return running, int(pid)
        await asyncio.sleep(0.01)
    raise AssertionError("the command did not start")


async def test_lines_of_both_streams_arrive_while_the_command_runs() -> None:
    seen: list[str] = []
    finished = await run_command(("sh", "-c", "echo out; echo err >&2; exit 3"), on_line=seen.append)
    assert sorted(seen) == ["err", "out"]
    assert (finished.exit_code, finished.stdout) == (3, "out")


async def test_very_long_lines_broken_characters_and_colours_do_no_harm() -> None:
    script = "head -c 300000 /dev/zero | tr '\\0' x; echo;"
    script += "printf '\\033[2K\\033[31mred\\033[0m\\n\\377\\n'; printf last"
    finished = await run_command(("sh", "-c", script))
    assert [len(finished.last_lines[0]), *finished.last_lines[1:]] == [
        300000,
        "red",
        "\N{REPLACEMENT CHARACTER}",
        "last",
    ]


async def test_secrets_are_in_no_line_and_not_in_the_command() -> None:
    finished = await run_command(("sh", "-c", "echo login hunter2 at http://me:pw@x"), secrets=["hunter2"])
    assert finished.last_lines == ("login **** at http://****@x",)
    assert "hunter2" not in finished.command
    assert "pw" not in finished.command


async def test_a_command_that_is_not_there_is_a_prerequisite() -> None:
    with pytest.raises(PrerequisiteError, match="not-a-command"):
        await run_command(("not-a-command-at-all",))


async def test_cancellation_ends_the_command_and_its_children(tmp_path: Path) -> None:
    running, child = await started("sleep 300 & echo $! > $PIDFILE; wait", tmp_path)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await gone(child)


async def test_a_command_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GRACE_SECONDS", 0.2)
    script = "trap '' TERM; echo $$ > $PIDFILE; while :; do sleep 0.05; done"
    running, pid = await started(script, tmp_path)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await gone(pid)


async def test_a_second_cancellation_does_not_wait_for_the_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GRACE_SECONDS", 600.0)
    running, pid = await started("trap '' TERM; echo $$ > $PIDFILE; while :; do sleep 0.05; done", tmp_path)
    running.cancel()
    await asyncio.sleep(0.05)
    running.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert await gone(pid)


async def test_a_cancellation_during_the_start_leaves_nothing(tmp_path: Path) -> None:
    marker = f"2{os.getpid()}.5"
    for delay in range(6):
        running = asyncio.create_task(run_command(("sleep", marker)))
        for _ in range(delay):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not any(marker.encode() in _read(file) for file in _command_lines())


def _command_lines() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*/cmdline"))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
