"""Run a coroutine from synchronous code, also where a loop runs already; an interrupt lets it clean up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")


def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `make()` to its end on a loop in a thread of its own.

    KeyboardInterrupt cancels it, waits until its clean-up is through, however often it comes again, and is
    then raised.
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

    thread = threading.Thread(target=work, name="gymctl.testing")
    thread.start()
    interrupt: KeyboardInterrupt | None = None
    while not outcome.done():  # not `join`: after an interrupt it takes the thread for ended (bpo-45274)
        try:
            wait([outcome])
        except KeyboardInterrupt as error:
            if interrupt is None:
                loop, task = started.result()
                loop.call_soon_threadsafe(task.cancel)
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return outcome.result()
