"""What a signal does to a running command: cancel, drain first, never disturb the taking down."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from gymctl.cli.interrupts import Interrupts, run
from gymctl.errors import Interrupted


async def raise_signal(number: int) -> None:
    os.kill(os.getpid(), number)
    await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_a_signal_cancels_and_names_the_exit_code(number: int, exit_code: int) -> None:
    async def main(_: Interrupts) -> None:
        await raise_signal(number)
        await asyncio.sleep(30)

    with pytest.raises(Interrupted) as caught:
        await Interrupts(lambda _: None).run(main)
    assert caught.value.exit_code == exit_code


async def test_the_first_signal_drains_and_the_second_stops() -> None:
    seen: list[str] = []

    async def main(interrupts: Interrupts) -> None:
        with interrupts.draining() as drain:
            await raise_signal(signal.SIGINT)
            assert drain.is_set()
            seen.append("still running")
            await raise_signal(signal.SIGINT)
            await asyncio.sleep(30)

    with pytest.raises(Interrupted):
        await Interrupts(lambda _: None).run(main)
    assert seen == ["still running"]


async def test_a_terminal_is_closed_once_however_often_that_is_told() -> None:
    async def main(interrupts: Interrupts) -> str:
        with interrupts.draining() as drain:
            await raise_signal(signal.SIGHUP)
            await raise_signal(signal.SIGHUP)
            assert drain.is_set()
        return "drained"

    told: list[str] = []
    assert await Interrupts(told.append).run(main) == "drained"
    assert len(told) == 1


async def test_a_sighup_that_was_ignored_stays_so_and_handlers_come_back() -> None:
    async def main(interrupts: Interrupts) -> int | None:
        await raise_signal(signal.SIGHUP)
        return interrupts.received

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        assert await Interrupts(lambda _: None).run(main) is None
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_IGN] * 3
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


async def test_taking_down_ends_whatever_signals_arrive() -> None:
    seen: list[str] = []

    async def down() -> None:
        await raise_signal(signal.SIGINT)
        await raise_signal(signal.SIGTERM)
        seen.append("down")

    async def main(interrupts: Interrupts) -> None:
        try:
            await raise_signal(signal.SIGINT)
            await asyncio.sleep(30)
        finally:
            await interrupts.shielded(down())

    told: list[str] = []
    with pytest.raises(Interrupted) as caught:
        await Interrupts(told.append).run(main)
    assert seen == ["down"]
    assert caught.value.exit_code == 130
    assert len(told) == 3


async def test_cleanup_in_a_finally_is_not_cancelled_by_a_second_signal() -> None:
    seen: list[str] = []

    async def main(_: Interrupts) -> None:
        try:
            await raise_signal(signal.SIGINT)
            await asyncio.sleep(30)
        finally:
            await raise_signal(signal.SIGINT)
            seen.append("cleaned")

    with pytest.raises(Interrupted):
        await Interrupts(lambda _: None).run(main)
    assert seen == ["cleaned"]


async def test_shielded_returns_the_result_and_raises_its_error() -> None:
    async def good() -> int:
        return 7

    async def bad() -> None:
        raise ValueError("bad")

    interrupts = Interrupts(lambda _: None)
    assert await interrupts.shielded(good()) == 7
    with pytest.raises(ValueError, match="bad"):
        await interrupts.shielded(bad())


async def test_a_failed_taking_down_is_reported_also_after_a_signal() -> None:
    async def down() -> None:
        await raise_signal(signal.SIGINT)
        raise ValueError("a container stayed")

    async def main(interrupts: Interrupts) -> None:
        try:
            await raise_signal(signal.SIGINT)
            await asyncio.sleep(30)
        finally:
            await interrupts.shielded(down())

    with pytest.raises(ValueError, match="a container stayed"):
        await Interrupts(lambda _: None).run(main)


async def test_a_command_without_signals_returns_its_value() -> None:
    async def main(_: Interrupts) -> str:
        return "done"

    assert await Interrupts(lambda _: None).run(main) == "done"


def test_a_signal_while_the_loop_waits_for_its_threads_is_not_heard() -> None:
    """It would close the loop before a thread ends, which then tells so with a traceback."""
    over = threading.Event()
    found: list[bool] = []

    def work() -> None:
        over.wait(30)
        for _ in range(3000):  # until the loop has nothing to do but to wait for this
            if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
                os.kill(os.getpid(), signal.SIGINT)
                found.append(True)
                return
            time.sleep(0.01)

    async def main(_: Interrupts) -> None:
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await raise_signal(signal.SIGINT)
            await working
        finally:
            over.set()

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted):
        run(main, lambda _: None)
    assert found == [True]
    assert signal.getsignal(signal.SIGINT) == before
