"""Run a coroutine from synchronous code, also where a loop runs already; an interrupt lets it clean up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")


def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `make()` to its end on a loop in a thread of its own.

    Ctrl+C cancels it, waits until its clean-up is through, however often it comes again, and ends in
    KeyboardInterrupt; that is raised also when the work was done by then.
    """
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()
    outcome: Future[T] = Future()

    async def main() -> T:
        task = asyncio.ensure_future(make())
        started.set_result((asyncio.get_running_loop(), task))
        return await task

    def work() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            outcome.set_exception(error)

    def cancel() -> None:
        loop, task = started.result()
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nothing is left to be cancelled
            loop.call_soon_threadsafe(task.cancel)

    with _interrupts(cancel) as interrupted:
        threading.Thread(target=work, name="gymctl.testing").start()
        wait([outcome])
    if interrupted.is_set():
        raise KeyboardInterrupt
    return outcome.result()


@contextlib.contextmanager
def _interrupts(first: Callable[[], None]) -> Iterator[threading.Event]:
    """SIGINT raises nothing meanwhile: an exception could come at any step, the waiting itself among them.

    The first one calls `first`. Outside of the main thread, which no signal reaches, nothing is changed.
    """
    interrupted = threading.Event()

    def handle(number: int, frame: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            first()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
