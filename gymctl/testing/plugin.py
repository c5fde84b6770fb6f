"""Pytest fixtures. In the conftest.py at the top of your tests:

    pytest_plugins = ["gymctl.testing.plugin"]

Not loaded by itself, so that a test run which does not need them pays nothing. `serve` and `scripted_model`
are fixtures of pytest-asyncio; tests that use another runner write `async with serving(…)` instead.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from gymctl.testing.scripted import Script, ScriptedModel
from gymctl.testing.serving import Served, serving

REQUIRED = "GYMCTL_REQUIRE_DOCKER"
"""Set in the environment: a missing engine is a failure, not a reason to skip."""

Serve = Callable[..., Awaitable[Served]]
"""Called like `serving`."""
MakeModel = Callable[[Script], Awaitable[ScriptedModel]]


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """`weather = await serve(Weather, {"domain": "agent"}, servers={"policy_model": model})`."""
    async with AsyncExitStack() as stack:

        async def begin(*args: object, **options: object) -> Served:
            return await stack.enter_async_context(serving(*args, **options))  # type: ignore[arg-type]

        yield begin


@pytest_asyncio.fixture
async def scripted_model() -> AsyncIterator[MakeModel]:
    """`model = await scripted_model(["Yes.", fault(500)])`."""
    async with AsyncExitStack() as stack:

        async def begin(script: Script) -> ScriptedModel:
            return await stack.enter_async_context(ScriptedModel(script))

        yield begin


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Skip the test where no engine answers; ask for it beside a `GymStack`."""
    from gymctl import engine

    if engine.answers():
        return
    if os.environ.get(REQUIRED):
        pytest.fail(f"no Docker engine answers, and {REQUIRED} is set", pytrace=False)
    pytest.skip(f"no Docker engine answers ({REQUIRED}=1 makes this a failure)")
