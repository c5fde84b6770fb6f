"""CONTRACT 7.1 to 7.3 and 7.6: environment servers that play episodes. Golden exchange A11."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.exchanges import call, episode, kinds, message, post, reply
from fakes.openai_upstream import OpenAIUpstream, Reply

from gymctl.errors import ConfigError
from gymctl.servers.inprocess import serving_folder

IMAGES = Path(__file__).resolve().parents[3] / "server_images"
ENVIRONMENTS = IMAGES / "environment_servers"
AGENT = {"type": "responses_api_agents", "name": "desk_agent"}
WEATHER = {"type": "resources_servers", "name": "weather"}
BLOCK = {
    "agent_server": AGENT,
    "resources_server": WEATHER,
    "resources_tool_transports": ["direct_http"],
    "cleanup_timeout_seconds": 5,
}
SLOW = Reply(delay=120)

Variant = Callable[..., Awaitable[str]]


@pytest.fixture
async def variant(agent_url: str, resources_url: str) -> AsyncIterator[Variant]:
    """An environment server of our own with other settings, between the target's agent and tools."""
    async with AsyncExitStack() as stack:

        async def begin(implementation: str = "single_agent_turn", **settings: Any) -> str:
            block = {**BLOCK, **settings}
            neighbours = {"desk_agent": agent_url, "weather": resources_url}
            folder = ENVIRONMENTS / implementation
            return await stack.enter_async_context(serving_folder(folder, "desk_env", block, neighbours))

        yield begin


async def asked(upstream: OpenAIUpstream, count: int = 1) -> None:
    """Until the model was asked so often."""
    async with asyncio.timeout(30):
        while upstream.posts() < count:  # noqa: ASYNC110 - counted in another thread
            await asyncio.sleep(0.02)


# 7.1


@pytest.mark.ours
@pytest.mark.parametrize(
    ("implementation", "block", "word"),
    [
        ("legacy_agent", {"agent_server": AGENT, "resources_server": WEATHER}, "resources_server"),
        ("legacy_agent", {"agent_server": AGENT, "resources_tool_transports": []}, "transports"),
        ("legacy_agent", {}, "agent_server"),
        ("single_agent_turn", {**BLOCK, "colour": 1}, "colour"),
        ("single_agent_turn", {**BLOCK, "resources_tool_transports": ["ftp"]}, "resources_tool_transports"),
        ("single_agent_turn", {**BLOCK, "max_concurrent_episodes": 1}, "queue_timeout_seconds"),
        ("single_agent_turn", {**BLOCK, "cleanup_timeout_seconds": 0}, "cleanup_timeout_seconds"),
        ("single_agent_turn", {**BLOCK, "default_episode_timeout_seconds": -1}, "default_episode"),
        ("single_agent_turn", {**BLOCK, "cleanup_timeout_seconds": None}, "cleanup_timeout_seconds"),
        ("single_agent_turn_legacy", {"agent_server": AGENT}, "resources_server"),
        ("single_agent_turn_legacy", {**BLOCK, "colour": 1}, "colour"),
    ],
)
async def test_7_1_a_block_with_mistakes_does_not_start(implementation, block, word):
    with pytest.raises(ConfigError) as caught:
        async with serving_folder(ENVIRONMENTS / implementation, "env", block):
            pass
    assert word in str(caught.value) + " ".join(caught.value.details)


@pytest.mark.ours
async def test_7_1_an_agent_reference_needs_no_type(variant, http, rollouts):
    url = await variant(agent_server={"name": "desk_agent"})
    assert (await post(http, f"{url}/run", episode(next(rollouts)))).json["failure"] is None


# 7.2


async def test_7_2_1_a_played_episode_has_a_result_and_its_identities_a11(
    http, native_environment_url, upstream, rollouts
):
    rollout = next(rollouts)
    upstream.plan(reply(call()), reply(message()))
    told = await post(http, f"{native_environment_url}/run", episode(rollout))
    assert told.status == 200
    assert told.json.keys() == {"episode_id", "task_id", "result", "failure"}
    assert told.json["episode_id"] == {"rollout_id": rollout, "attempt": 0}
    assert told.json["task_id"] == {"taskset": "weather", "task_id": "17"}
    assert told.json["failure"] is None
    result = told.json["result"]
    assert isinstance(result["reward"], float)
    assert result["ng_agent_observations"] is None
    assert result["mask_sample"] is False
    assert kinds(result["response"]) == ["function_call", "function_call_output", "message"]


async def test_7_2_2_a_rollout_id_with_an_attempt_suffix_is_422_a11(http, native_environment_url):
    told = await post(http, f"{native_environment_url}/run", episode("0-1-a2"))
    assert told.status == 422
    detail = told.detail[0]
    assert (detail["type"], detail["loc"], detail["input"]) == (
        "value_error",
        ["body", "episode_id", "rollout_id"],
        "0-1-a2",
    )
    assert detail["msg"].startswith("Value error, ")


@pytest.mark.parametrize(
    "change",
    [
        {"colour": 1},
        {"episode_id": {"rollout_id": "0-1", "attempt": -1}},
        {"episode_id": {"rollout_id": ".hidden"}},
        {"episode_id": {"rollout_id": "0-1", "colour": 1}},
        {"task": {"task_id": {"taskset": "", "task_id": "1"}, "task_input": {}}},
        {"task": {"task_id": {"taskset": "w", "task_id": "1"}, "task_input": {}, "colour": 1}},
        {"task": {"task_id": {"taskset": "w", "task_id": "1"}, "task_input": {}}},
    ],
)
async def test_7_2_3_malformed_episodes_are_422(http, native_environment_url, change):
    told = await post(http, f"{native_environment_url}/run", {**episode("0-1"), **change})
    assert told.status == 422


async def test_7_2_4_loose_fields_are_folded_into_task_data(http, native_environment_url, rollouts):
    same = episode(next(rollouts), city="Oslo")
    assert (await post(http, f"{native_environment_url}/run", same)).json["failure"] is None
    other = episode(next(rollouts), city="Rome")
    assert (await post(http, f"{native_environment_url}/run", other)).status == 422


# 7.3


async def test_7_3_1_overload_is_a_200_with_stage_admission(http, variant, upstream, rollouts):
    url = await variant(max_concurrent_episodes=1, queue_timeout_seconds=0.2)
    upstream.plan(SLOW)
    first = asyncio.create_task(post(http, f"{url}/run", episode(next(rollouts))))
    await asked(upstream)
    told = await post(http, f"{url}/run", episode(next(rollouts)))
    assert told.status == 200
    assert json.dumps(told.json["failure"]) == (
        '{"failure_reason": "Episode admission timed out", "terminal": false, "stage": "admission", '
        '"partial_response": null}'
    )
    first.cancel()


async def test_7_3_2_the_deadline_is_a_failure_without_stage(http, variant, upstream, rollouts):
    url = await variant(default_episode_timeout_seconds=0.3)
    upstream.plan(SLOW)
    told = await post(http, f"{url}/run", episode(next(rollouts)))
    assert told.status == 200
    failure = told.json["failure"]
    assert (failure["failure_reason"], failure["terminal"]) == ("Episode timed out", False)
    assert not {"stage", "failure_kind"} & failure.keys(), "left out when they are null"


@pytest.mark.ours
async def test_7_3_3_an_unforeseen_error_is_terminal(http, rollouts):
    from gymctl.servers import EnvironmentServer
    from gymctl.servers.inprocess import make_part, serving
    from gymctl.servers.stack.app import assemble

    class Broken(EnvironmentServer):
        async def play(self, episode: Any) -> dict[str, Any]:
            raise RuntimeError("x" * 5000)

    part = make_part("env", "environment_servers", "broken", {"cleanup_timeout_seconds": 1})
    async with serving(assemble(Broken(part))) as url:
        failure = (await post(http, f"{url}/run", episode(next(rollouts)))).json["failure"]
    assert failure["failure_reason"].startswith("Unhandled environment server error: RuntimeError: xxx")
    assert len(failure["failure_reason"]) == 2000
    assert failure["terminal"] is True


@pytest.mark.ours
async def test_7_3_4_clean_up_runs_newest_first_to_its_end_also_when_cancelled(http, rollouts):
    from gymctl.servers import EnvironmentServer, Episode
    from gymctl.servers.inprocess import make_part, serving
    from gymctl.servers.stack.app import assemble

    done: list[str] = []
    playing, cleaned = asyncio.Event(), asyncio.Event()

    class Slow(EnvironmentServer):
        async def play(self, episode: Episode) -> dict[str, Any]:
            async def first() -> None:
                await asyncio.sleep(0.1)
                done.append("first")
                cleaned.set()

            async def second() -> None:
                await asyncio.sleep(0.1)
                done.append("second")
                raise RuntimeError("only logged")

            episode.on_cleanup(first)
            episode.on_cleanup(second)
            playing.set()
            await asyncio.sleep(60)
            return {}

    part = make_part("env", "environment_servers", "slow", {"cleanup_timeout_seconds": 20})
    async with serving(assemble(Slow(part))) as url:
        run = asyncio.create_task(post(http, f"{url}/run", episode(next(rollouts))))
        await playing.wait()
        run.cancel()
        async with asyncio.timeout(20):
            await cleaned.wait()
    assert done == ["second", "first"]


async def test_7_3_5_calls_carry_the_capture_key(http, native_environment_url, upstream, rollouts):
    told = await post(http, f"{native_environment_url}/run", episode(next(rollouts), attempt=2))
    assert told.json["episode_id"]["attempt"] == 2
    assert told.json["failure"] is None


# 7.6


async def test_7_6_1_a_failing_agent_is_a_200_with_stage_agent_a11(
    http, native_environment_url, upstream, rollouts
):
    rollout = next(rollouts)
    upstream.plan(Reply(400, {"error": {"message": "no"}}))
    told = await post(http, f"{native_environment_url}/run", episode(rollout))
    assert (told.status, told.json["result"]) == (200, None)
    failure = told.json["failure"]
    reason = failure["failure_reason"]
    assert reason.startswith("500, message='Internal Server Error', url='http://")
    assert reason.endswith(f"/ng-rollout/{rollout}/v1/responses'")
    assert {"terminal": False, "stage": "agent", "partial_response": None}.items() <= failure.items()
    assert "failure_kind" not in failure


@pytest.mark.parametrize(("status", "is_terminal"), [(400, True), (404, True), (429, False), (503, False)])
async def test_7_6_2_terminal_unless_the_cause_may_pass(http, rollouts, status, is_terminal):
    """A resources server that refuses the seed with this status."""
    told = await _refused_seed(http, next(rollouts), Reply(status))
    assert (told["stage"], told["terminal"]) == ("seed", is_terminal)


async def test_7_6_3_a_seed_without_cookie_is_a_failure(http, rollouts):
    told = await _refused_seed(http, next(rollouts), Reply(body={"resources_session_id": "?"}))
    assert (told["stage"], told["terminal"]) == ("seed", True)


async def _refused_seed(http: Any, rollout: str, answer: Reply) -> dict[str, Any]:
    async with OpenAIUpstream() as resources:
        resources.always = answer
        neighbours = {"desk_agent": resources.origin, "weather": resources.origin}
        async with serving_folder(ENVIRONMENTS / "single_agent_turn", "env", BLOCK, neighbours) as url:
            told = await post(http, f"{url}/run", episode(rollout))
        paths = [asked.path for asked in resources.asked if asked.method == "POST"]
    assert told.status == 200
    assert paths[0] == "/seed_session"
    assert set(paths[1:]) == {"/close_session"}, "its close is registered before the seed"
    return told.json["failure"]


async def test_7_6_4_a_failing_verifier_keeps_the_response(http, native_environment_url, upstream, rollouts):
    upstream.plan(reply(message()))
    wrong = episode(next(rollouts), task_data={"city": {"not": "a city"}})
    failure = (await post(http, f"{native_environment_url}/run", wrong)).json["failure"]
    if failure is None or failure["stage"] == "seed":
        pytest.skip("this resources server takes any row, or refuses it when it is seeded")
    assert (failure["stage"], failure["terminal"]) == ("verification", True)
    assert kinds(failure["partial_response"]) == ["message"]


@pytest.mark.ours
async def test_7_6_5_mcp_without_an_offer_is_terminal(http, variant, rollouts):
    url = await variant(resources_tool_transports=["mcp"])
    failure = (await post(http, f"{url}/run", episode(next(rollouts)))).json["failure"]
    assert (failure["stage"], failure["terminal"]) == ("seed", True)


async def test_7_6_6_aggregation_is_the_resources_servers(http, native_environment_url):
    told = await post(http, f"{native_environment_url}/aggregate_metrics", {"verify_responses": []})
    assert told.json == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
        "perf_summary": None,
        "repeat_level_metrics": [],
    }
