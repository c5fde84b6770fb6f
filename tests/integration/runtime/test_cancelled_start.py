"""A start that is cancelled while its processes are being made: a moment that a signal hits only by luck."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.runtime import processes
from gymctl.runtime.up import bring_up

if TYPE_CHECKING:
    from conftest import Folder


class Silent:
    def step(self, name: str, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def progress(self, text: str) -> None: ...


async def test_a_start_cancelled_between_two_processes_leaves_neither(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.server("one")
    folder.server("two")
    real = processes._start
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any) -> Any:
        started = real(*arguments)
        loop.call_soon_threadsafe(has_begun.set)
        time.sleep(
            0.3
        )  # long enough for a take-down that does not wait to be over before the next one starts
        return started

    monkeypatch.setattr(processes, "_start", slow)
    selection = Selection(
        config=("tiny.yaml",), project=folder.project, overrides=(f"++head_server.port={folder.head_port}",)
    )
    config = load(selection, cwd=folder.path)
    start = asyncio.create_task(bring_up(config, choice="process", reporter=Silent(), base=folder.path))
    async with asyncio.timeout(60):
        await has_begun.wait()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await asyncio.sleep(1)
    assert folder.processes() == []
