"""CONTRACT 7.5 and 7.7: relays, and environment servers of flat rows. Golden exchanges A10, A12 and A15."""

from __future__ import annotations

import pytest
from fakes.exchanges import OSLO, TOOL, call, episode, message, post, reply, row
from fakes.openai_upstream import Reply

# 7.5


async def test_7_5_1_the_relay_answers_as_the_agent_does_a10(http, environment_url, agent_url, upstream):
    body = row(
        responses_create_params={"input": "Weather?", "tools": [TOOL]},
        _ng_task_index=0,
        _ng_rollout_index=1,
        agent_ref={"name": "desk_agent"},
    )
    answers = []
    for url in (environment_url, agent_url):
        upstream.reset()
        upstream.plan(reply(call()), reply(message()))
        answers.append(await post(http, f"{url}/run", body))
    relayed, direct = answers
    assert (relayed.status, relayed.body) == (direct.status, direct.body)
    assert relayed.cookies.keys() == direct.cookies.keys() != set()
    output = relayed.json["response"]["output"]
    assert output[0]["arguments"] == OSLO
    assert output[1]["call_id"] == "call_1"
    assert {"id": None, "status": None}.items() <= output[1].items()
    assert output[2]["content"][0]["text"] == "Snow, -4."
    assert relayed.json["response"]["usage"]["total_tokens"] == 30
    assert {
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
    }.items() <= relayed.json.items()


@pytest.mark.parametrize("body", [{"no": "params"}, {"responses_create_params": {"input": "x", "colour": 1}}])
async def test_7_5_2_the_relay_reads_neither_contract(http, environment_url, agent_url, body):
    relayed, direct = [await post(http, f"{url}/run", body) for url in (environment_url, agent_url)]
    assert (relayed.status, relayed.body) == (direct.status, direct.body)
    assert relayed.status == 422


async def test_7_5_3_aggregation_goes_to_the_agent_a15(http, environment_url):
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
    told = await post(http, f"{environment_url}/aggregate_metrics", {"verify_responses": rows})
    assert told.json == {
        "group_level_metrics": [
            {
                "_ng_task_index": 0,
                "mean/reward": 1.0,
                "max/reward": 1.0,
                "min/reward": 1.0,
                "median/reward": 1.0,
                "std/reward": 0.0,
                "sample": {"agent_ref": {"name": "agent"}},
                "num_rollouts": 1,
                "expected_num_rollouts": 1,
                "missing_num_rollouts": 0,
                "reward_profile_completion_pct": 100.0,
                "rollout_infos": [
                    {"rollout_id": "0:0", "_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}
                ],
            }
        ],
        "agent_metrics": {
            "mean/reward": 1.0,
            "max/reward": 1.0,
            "min/reward": 1.0,
            "median/reward": 1.0,
            "std/reward": 0.0,
            "num_repeats": 1,
        },
        "key_metrics": {"mean/reward": 1.0},
        "perf_summary": None,
        "repeat_level_metrics": [],
    }


# 7.7


async def test_7_7_1_a_failed_flat_row_is_a_200_a12(http, rows_url, upstream):
    upstream.plan(Reply(400, {"error": {"message": "no"}}))
    told = await post(http, f"{rows_url}/run", row(_ng_task_index=0, _ng_rollout_index=1))
    assert told.status == 200
    assert list(told.json) == [
        "_ng_failure_class",
        "_ng_failure_terminal",
        "_ng_failure_message",
        "_ng_failure_stage",
        "agent_ref",
    ]
    assert told.json["_ng_failure_class"] == "environment_server_failed"
    assert told.json["_ng_failure_message"].startswith("500, ")
    assert (told.json["_ng_failure_terminal"], told.json["_ng_failure_stage"]) == (False, "agent")
    assert told.json["agent_ref"].keys() == {"name"}


async def test_7_7_2_a_row_of_another_agent_is_a_500_a12(http, rows_url, upstream):
    right = row(_ng_task_index=0, _ng_rollout_index=1)
    agent = (await post(http, f"{rows_url}/run", right)).json["agent_ref"]["name"]
    told = await post(http, f"{rows_url}/run", {**right, "agent_ref": {"name": "zz"}})
    expected = f"ValueError(\"Row agent_ref 'zz' does not match configured agent server '{agent}'\")"
    assert (told.status, told.json) == (500, expected)


async def test_7_7_3_a_flat_row_and_an_episode_are_answered_flat(http, rows_url, upstream, rollouts):
    upstream.plan(reply(call()), reply(message()))
    for body in (row(_ng_task_index=0, _ng_rollout_index=1), episode(next(rollouts))):
        flat = (await post(http, f"{rows_url}/run", body)).json
        assert isinstance(flat["reward"], float)
        assert flat["agent_ref"].keys() == {"name"}
        assert "ng_agent_observations" not in flat
