"""Work that has to be finished although the one who asked for it is being cancelled, and work that must not
take the server along."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end; a cancellation meanwhile arrives afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


async def contained(work: Awaitable[T]) -> T:
    """For handlers that run in a task of their own: one that ends with SystemExit would take the event loop
    with it; inside a group it is only a failure."""
    try:
        return await work
    except SystemExit as error:
        raise BaseExceptionGroup("the handler called exit()", [error]) from None
