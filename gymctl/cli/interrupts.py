"""SIGINT, SIGTERM and SIGHUP: cancel, or drain first; never while things are being taken down."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gymctl.cli.entry import leave_terminal
from gymctl.errors import Interrupted
from gymctl.runtime.tasks import finish

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Runs one coroutine and decides what a signal does to it.

    Outside of the two blocks below, the first signal cancels the coroutine, whose `finally` blocks take down
    what it started. Inside `draining()` the first signal only sets `drain` and the second cancels. Once
    cancelled, and inside `cleanup()`, further signals only say so: nothing is left half removed. A terminal
    that is closed is told of by its shell and by the kernel: several SIGHUPs are one. Where it is ignored
    when we start (`nohup`), it stays so.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.drain = asyncio.Event()
        self.received: int | None = None
        self._tell = tell
        self._is_draining = False
        self._is_cleaning = 0
        self._is_stopping = False
        self._task: asyncio.Task[object] | None = None

    @contextmanager
    def draining(self) -> Iterator[asyncio.Event]:
        self._is_draining = True
        try:
            yield self.drain
        finally:
            self._is_draining = False

    @contextmanager
    def cleanup(self) -> Iterator[None]:
        self._is_cleaning += 1
        try:
            yield
        finally:
            self._is_cleaning -= 1

    async def shielded(self, work: Awaitable[T]) -> T:
        """Await `work` to its end; signals meanwhile are only counted, a cancellation arrives afterwards."""
        with self.cleanup():
            return await finish(work)

    def _on_signal(self, number: int) -> None:
        leave_terminal(number)
        if number == self.received == signal.SIGHUP:
            return
        is_first = self.received is None
        self.received = self.received or number
        if self._is_cleaning or self._is_stopping:
            self._tell("still stopping; nothing will be left running")
        elif self._is_draining and is_first:
            self._tell("draining: no new rollouts, waiting for the running ones (again to stop now)")
            self.drain.set()
        elif self._task is not None:
            self._tell("stopping")
            self._is_stopping = True
            self._task.cancel()

    async def run(self, main: Callable[[Interrupts], Awaitable[T]]) -> T:
        """Run `main(self)`. Raises Interrupted when it ended because of a signal."""
        loop = asyncio.get_running_loop()
        task: asyncio.Task[T] = asyncio.ensure_future(main(self))  # type: ignore[arg-type]
        self._task = task
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        if before[signal.SIGHUP] == signal.SIG_IGN:
            del before[signal.SIGHUP]
        for number in before:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            return await task
        except asyncio.CancelledError:
            if self.received is None:
                raise
            raise Interrupted(signal_number=self.received) from None
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


def run(main: Callable[[Interrupts], Awaitable[T]], tell: Callable[[str], None]) -> T:
    """Run an async command from synchronous code, on uvloop where it is installed."""
    heard = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        try:
            import uvloop
        except ImportError:  # pragma: no cover - Windows
            return asyncio.run(_with(main, tell))
        return uvloop.run(_with(main, tell))
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


async def _with(main: Callable[[Interrupts], Awaitable[T]], tell: Callable[[str], None]) -> T:
    interrupts = Interrupts(tell)
    try:
        return await interrupts.run(main)
    finally:
        if interrupts.received is not None:
            # The loop waits for its threads now, and one more signal would close it before they end.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
