"""Asynchronous work from synchronous code: its result, its error, and what Ctrl+C does to it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from gymctl.testing import own_loop


async def test_it_runs_where_a_loop_runs_already() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert own_loop.run(work) == 7


def test_an_error_is_the_callers() -> None:
    async def work() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        own_loop.run(work)


def test_interrupts_wait_for_the_clean_up_also_when_repeated() -> None:
    steps: list[str] = []

    async def work() -> None:
        kill = threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT))
        try:
            kill.start()
            await asyncio.sleep(30)
        finally:
            steps.append("cancelled")
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.2)
            steps.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        own_loop.run(work)
    assert steps == ["cancelled", "cleaned up"]
