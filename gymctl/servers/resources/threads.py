"""Where plain `def` handlers run: beside the event loop, so that a blocking one holds nobody else up.

A thread cannot be stopped: when the caller of such a handler leaves, its answer is dropped, but the function
runs to its end. Work that must end with its caller belongs into an `async def`.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class HandlerThreads:
    """At most `count` functions at once; with one thread, all of them in that very thread, one by one."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="handler")

    async def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Await an `async def`, run anything else in a thread."""
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        return await self.run(function, *args, **kwargs)

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a plain function in a thread; it sees the context variables of the caller."""
        work = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Start nothing more; what runs is left to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
