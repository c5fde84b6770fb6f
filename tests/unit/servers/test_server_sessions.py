"""What agents and resources servers remember of sessions: enough for every repeat, little in the long run."""

from __future__ import annotations

import pytest
from starlette.exceptions import HTTPException

from gymctl.contract.episodes import ResourcesSeed
from gymctl.servers.agents.sessions import AgentClose, AgentReceipt, AgentSeed, AgentSessions
from gymctl.servers.resources.typed_sessions import ResourcesSessions

EPISODE = {"rollout_id": "0-0"}
TASK = {"taskset": "w", "task_id": "0"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def close(name: str) -> AgentClose:
    return AgentClose.model_validate({"agent_session_id": name, "episode_id": EPISODE})


def test_a_receipt_is_kept_for_its_window_and_then_only_the_id():
    clock = Clock()
    sessions = AgentSessions(300, clock)
    seed = AgentSeed.model_validate({"agent_session_id": "s", "episode_id": EPISODE, "task_id": TASK})
    session = sessions.bound(seed, None)
    receipt = AgentReceipt(agent_session_id="s", resources_cookies={"W___x": "signed"})
    sessions.closed(session, receipt)
    clock.now = 299
    assert sessions.receipt(close("s"), "s") == receipt
    clock.now = 301
    with pytest.raises(HTTPException, match="expired"):
        sessions.receipt(close("s"), "s")
    assert sessions.receipt(close("s"), None) == AgentReceipt(agent_session_id="s")
    assert not sessions._receipts
    with pytest.raises(HTTPException, match="already closed"):
        sessions.bound(seed, None)


async def test_a_seed_is_recognised_without_being_kept():
    async def run() -> None:
        runs.append(1)

    def seed(**data: int) -> ResourcesSeed:
        body = {"resources_session_id": "r", "episode_id": EPISODE, "task_id": TASK, "task_data": data}
        return ResourcesSeed.model_validate(body)

    runs: list[int] = []
    sessions = ResourcesSessions()
    await sessions.seed(seed(a=1, b=2), run)
    await sessions.seed(seed(b=2, a=1), run)
    assert len(runs) == 1
    with pytest.raises(HTTPException, match="another seed request"):
        await sessions.seed(seed(a=1, b=3), run)


async def test_a_seed_that_comes_while_its_session_is_closed_is_refused():
    sessions = ResourcesSessions()
    seed = ResourcesSeed.model_validate(
        {"resources_session_id": "r", "episode_id": EPISODE, "task_id": TASK, "task_data": {}}
    )
    seeded: list[str] = []

    async def begin() -> None:
        seeded.append("r")

    async def release() -> None:
        with pytest.raises(HTTPException, match="already closed"):
            await sessions.seed(seed, begin)

    await sessions.close("r", release)
    assert seeded == []


async def test_a_close_of_a_session_nobody_seeded_that_fails_leaves_it_open():
    sessions = ResourcesSessions()
    seed = ResourcesSeed.model_validate(
        {"resources_session_id": "r", "episode_id": EPISODE, "task_id": TASK, "task_data": {}}
    )

    async def fail() -> None:
        raise OSError("still busy")

    async def nothing() -> None: ...

    with pytest.raises(OSError, match="still busy"):
        await sessions.close("r", fail)
    await sessions.seed(seed, nothing)
