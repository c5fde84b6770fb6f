"""Typed sessions of a resources server: seeded once, closed once, never seeded after that (CONTRACT 5.3)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.exceptions import HTTPException

from gymctl.contract.episodes import ResourcesSeed
from gymctl.servers.stack.recent import Recent

REMEMBERED = 262144
"""Seeds and tombstones kept, at most; an entry takes about 400 bytes."""


class _Seeded:
    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.lock = asyncio.Lock()
        self.is_done = False


class ResourcesSessions:
    """Seed and close of one id happen one after the other; a close before any seed leaves a tombstone."""

    def __init__(self) -> None:
        self._seeded: Recent[str, _Seeded] = Recent(REMEMBERED)
        self._closed: Recent[str, bool] = Recent(REMEMBERED)

    async def seed(self, seed: ResourcesSeed, run: Callable[[], Awaitable[None]]) -> None:
        """Run the seed once; the same request again is fine, another one for the same id is refused."""
        session_id = seed.resources_session_id
        self._refuse_closed(session_id)
        digest = _digest(seed)
        entry = self._seeded.get(session_id)
        if entry is None:
            entry = _Seeded(digest)
            self._seeded.put(session_id, entry)
        elif entry.digest != digest:
            raise HTTPException(409, "resources_session_id is already bound to another seed request")
        async with entry.lock:
            self._refuse_closed(session_id)
            if not entry.is_done:
                await run()
                entry.is_done = True

    def _refuse_closed(self, session_id: str) -> None:
        if session_id in self._closed:
            raise HTTPException(409, "Resources session is already closed")

    async def close(self, session_id: str, release: Callable[[], Awaitable[None]]) -> None:
        """Release, then remember the id as closed. When the release raises, the id stays open."""
        entry = self._seeded.get(session_id)
        if entry is None:
            was_closed = session_id in self._closed
            self._closed.put(session_id, True)  # first: a seed that comes meanwhile would never be released
            try:
                await release()
            except BaseException:
                if not was_closed:
                    self._closed.drop(session_id)
                raise
            return
        async with entry.lock:
            await release()
            self._closed.put(session_id, True)
            self._seeded.drop(session_id)


class Turns:
    """One after the other, by key."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            yield


def _digest(seed: ResourcesSeed) -> bytes:
    """Instead of the seed, whose task data may be large, and is kept until the session is closed."""
    return hashlib.sha256(json.dumps(seed.model_dump(), sort_keys=True).encode()).digest()
