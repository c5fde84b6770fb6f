"""A server's place in a Ray cluster: joined before its first request, left after its last (DESIGN D8).

    @ray.remote
    def solve(n): ...

    class Solver(ResourcesServer):
        ray_enabled = True

        @tool
        async def solve(self, n: int) -> Answer:
            return Answer(value=await solve.remote(n))

Ray is the server's own package, named in its requirements; nothing of it is imported for others.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gymctl.errors import ServerError

logger = logging.getLogger("gymctl.server")


@asynccontextmanager
async def joined(address: str | None, module: str) -> AsyncIterator[None]:
    """Connected to the cluster at `address`. module: that of the server's class, whose tasks travel as code:
    it is loaded from a file, and Ray would look for its name elsewhere in vain. Raises ServerError."""
    if address is None:
        raise ServerError(
            "this server uses Ray, and was told of no cluster", hint="ray_head_node_address names one"
        )
    ray = _imported("ray")
    _imported("ray.cloudpickle").register_pickle_by_value(sys.modules[module])
    await asyncio.to_thread(_connect, ray, address)
    logger.info("joined Ray at %s", address)
    try:
        yield
    finally:
        await asyncio.to_thread(ray.shutdown)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ServerError(
            f"this server uses Ray, which is not installed: {error}",
            hint="name `ray[client]` in its requirements.txt",
        ) from error


def _connect(ray: Any, address: str) -> None:
    try:
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ServerError(f"cannot join Ray at {address}: {first}") from error
