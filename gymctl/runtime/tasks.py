"""Structured concurrency: a task group that raises its first error, and work that is not cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup whose first failure is raised as itself, not inside an ExceptionGroup."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        error: BaseException = failures
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def finish(work: Awaitable[T]) -> T:
    """Await `work` to its end; a cancellation that comes meanwhile is raised afterwards.

    When `work` failed, its error is raised instead: that something could not be stopped is the bigger news.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
