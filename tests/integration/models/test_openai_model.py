"""openai_model against a real upstream over HTTP: CONTRACT 13.1, 13.2, appendix A3-A5."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from gymctl.errors import ConfigError

KEY = "sk-secret-of-the-test"


def block(upstream: Any, **settings: Any) -> dict[str, Any]:
    return {
        "openai_base_url": upstream.url,
        "openai_api_key": KEY,
        "openai_model": "tiny-1",
        "upstream_unreachable_seconds": 1,
        **settings,
    }


async def test_a_call_is_forwarded_and_its_answer_comes_back_unchanged(start, upstream):
    server = await start(
        "openai_model",
        **block(
            upstream,
            extra_body={"service_tier": "flex", "temperature": 0.1},
            openai_default_headers={"x-team": "red"},
        ),
    )
    status, answer = await server.post(
        "/v1/responses", {"input": "hello", "temperature": 0.9, "model": "other", "user": None}
    )
    assert status == 200
    assert answer["output"][0]["content"][0]["text"] == "Hi."
    assert answer["vendor_field"] == {"kept": True}
    (asked,) = upstream.asked
    assert asked.path == "/v1/responses"
    assert asked.json == {"service_tier": "flex", "temperature": 0.9, "input": "hello", "model": "tiny-1"}
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-team"] == "red"


async def test_rollout_prefixes_are_stripped_and_the_session_cookie_is_set(start, upstream):
    server = await start("openai_model", **block(upstream))
    for prefix in ("/ng-rollout/0-1", "/ng-rollout/0-1/training-token-capture"):
        status, _ = await server.post(f"{prefix}/v1/responses", {"input": "hello"})
        assert status == 200
        status, _ = await server.post(
            f"{prefix}/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}
        )
        assert status == 200
    assert [a.path for a in upstream.asked] == ["/v1/responses", "/v1/chat/completions"] * 2


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("/v1/responses", {"input": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
async def test_unknown_keys_are_422_in_the_known_shape(start, upstream, path, good):
    server = await start("openai_model", **block(upstream))
    status, answer = await server.post(path, {**good, "colour": 1})
    assert status == 422
    assert answer["detail"] == [
        {
            "type": "extra_forbidden",
            "loc": ["body", "colour"],
            "msg": "Extra inputs are not permitted",
            "input": 1,
        }
    ]
    assert upstream.asked == []


async def test_an_upstream_refusal_is_500_with_the_upstreams_body(start, upstream, reply):
    upstream.always = reply(400)
    server = await start("openai_model", **block(upstream))
    status, answer = await server.post("/v1/responses", {"input": "x"})
    assert status == 500
    assert answer == (
        "Hit an exception in OpenAIModel___policy_model calling an inner server: "
        'b\'{"error":{"message":"no"}}\''
    )
    assert upstream.posts() == 1


@pytest.mark.parametrize("status", [404, 408, 429, 500, 502, 503, 504, 520])
async def test_retried_statuses_are_tried_three_times_in_total(start, upstream, reply, status):
    upstream.always = reply(status)
    server = await start("openai_model", **block(upstream))
    got, _ = await server.post("/v1/responses", {"input": "x"})
    assert got == 500
    assert upstream.posts() == 3
    pauses = [b.at - a.at for a, b in zip(upstream.asked, upstream.asked[1:], strict=False)]
    assert all(pause >= 0.45 for pause in (pauses if status != 404 else pauses[1:]))


async def test_a_retry_that_succeeds_is_a_success_and_retry_after_is_honoured(start, upstream, reply, pauses):
    upstream.plan(reply(429, headers={"retry-after": "1.2"}), reply(503), reply())
    server = await start("openai_model", **block(upstream, max_http_attempts=5))
    status, _ = await server.post("/v1/responses", {"input": "x"})
    assert status == 200
    first, second, third = (a.at for a in upstream.asked)
    assert second - first >= 1.15
    assert third - second >= 0.95
    assert 1.2 <= pauses[0] <= 1.5 and 1 <= pauses[1] <= 1.25


async def test_a_dropped_connection_counts_as_a_try(start, upstream, reply):
    upstream.plan(reply(is_dropped=True))
    server = await start("openai_model", **block(upstream))
    assert (await server.post("/v1/responses", {"input": "x"}))[0] == 200
    assert upstream.posts() == 2
    upstream.always = reply(is_dropped=True)
    status, answer = await server.post("/v1/responses", {"input": "x"})
    assert status == 500
    assert "peer_drop" in answer
    assert upstream.posts() == 5


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}),
        (403, {"error": {"message": "Invalid API key"}}),
        (429, {"error": {"message": "pay", "type": "insufficient_quota"}}),
    ],
)
async def test_a_refused_key_or_spent_quota_stops_the_process_from_asking(
    start, upstream, reply, caplog, status, body
):
    upstream.plan(reply(status, body))
    server = await start("openai_model", **block(upstream))
    first = await server.post("/v1/responses", {"input": "x"})
    second = await server.post("/v1/responses", {"input": "y"})
    assert first[0] == second[0] == 500
    assert first[1] == second[1]
    assert upstream.posts() == 1
    assert KEY not in str(first[1])
    assert KEY not in caplog.text


async def test_a_key_with_a_line_break_is_refused_before_the_first_request(start, upstream):
    with pytest.raises(ConfigError, match="line break") as caught:
        await start("openai_model", **block(upstream, openai_api_key=f"{KEY}\n"))
    assert KEY not in str(caught.value)


async def test_a_refused_call_says_that_the_endpoint_behind_the_model_server_refused_it(
    start, upstream, reply
):
    """Without this a wrong key looks like a fault of the environment."""
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(status=401, body={"error": {"message": "Incorrect API key provided"}}))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/responses", json={"input": "x"}) as answer,
    ):
        call = answer.headers["x-gymctl-failed-call"]
    assert call == f"policy_model/{upstream.url.removeprefix('http://')}/responses 401"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5, "model": "m"}),
    ],
)
async def test_how_long_the_endpoint_asks_to_wait_reaches_the_caller(start, upstream, reply, path, body):
    server = await start("openai_model", **block(upstream, max_http_attempts=1))
    upstream.plan(reply(429, {"error": {"message": "slow down"}}, headers={"Retry-After": "7"}))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}{path}", json=body) as answer,
    ):
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["x-gymctl-failed-call"].endswith(" 429")


async def test_other_refusals_do_not_stop_it(start, upstream, reply):
    upstream.plan(reply(401, {"error": {"message": "you are not in this project"}}))
    server = await start("openai_model", **block(upstream))
    assert (await server.post("/v1/responses", {"input": "x"}))[0] == 500
    assert (await server.post("/v1/responses", {"input": "x"}))[0] == 200


async def test_a_chat_only_upstream_is_translated_to_and_remembered(start, upstream):
    upstream.missing.add("/v1/responses")
    server = await start("openai_model", **block(upstream))
    for _ in range(2):
        status, answer = await server.post(
            "/v1/responses", {"input": "hello", "max_output_tokens": 7, "metadata": {"a": "b"}}
        )
        assert status == 200
        assert answer["output"][0]["content"][0]["text"] == "Hi."
        assert answer["usage"]["input_tokens"] == 9
        assert answer["metadata"] == {"a": "b"}
    assert [a.path for a in upstream.asked] == [
        "/v1/responses",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert upstream.asked[1].json == {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "max_tokens": 7,
        "metadata": {"a": "b"},
        "model": "tiny-1",
    }


async def test_a_responses_only_upstream_serves_chat(start, upstream):
    server = await start("openai_model", **block(upstream, upstream_dialect="responses"))
    status, answer = await server.post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    )
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "Hi."
    assert upstream.asked[0].json["max_output_tokens"] == 4


async def test_an_answer_that_no_agent_could_read_is_an_error(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    for body in (b"<html>", {"output": "text"}, {"output": [{"role": "assistant"}]}, []):
        upstream.plan(reply(200, body))
        status, answer = await server.post("/v1/responses", {"input": "x"})
        assert status == 500
        assert "the upstream answered with no" in answer


async def test_reasoning_items_can_be_dropped_from_the_input(start, upstream):
    server = await start("openai_model", **block(upstream, drop_input_reasoning_items="true"))
    items = [{"role": "user", "content": "x"}, {"type": "reasoning", "id": "r", "summary": []}]
    await server.post("/v1/responses", {"input": items})
    assert upstream.asked[0].json["input"] == items[:1]


async def test_no_more_than_the_configured_requests_are_in_flight(start, upstream, reply):
    upstream.always = reply(delay=0.05)
    server = await start("openai_model", **block(upstream, max_concurrent_requests=3))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.post("/v1/responses", {"input": "x"})) for _ in range(12)]
    assert {task.result()[0] for task in tasks} == {200}
    assert upstream.peak == 3


async def test_a_dead_upstream_fails_the_call_after_a_while_and_is_reported_as_waiting(start, upstream):
    dead = upstream.url.replace(upstream.url.split(":")[2], "9/v1")  # nothing listens on port 9
    server = await start("openai_model", **{**block(upstream), "openai_base_url": dead})
    async with asyncio.timeout(20):
        status, answer = await server.post("/v1/responses", {"input": "x"})
    assert status == 500
    assert "transport_unreachable" in answer
    (state,) = (await server.get("/gymctl/upstream"))[1]
    assert (state["key"], state["url"], state["state"]) == ("openai_base_url", dead, "waiting")


@pytest.mark.parametrize(("status", "state"), [(200, "answering"), (401, "answering"), (503, "waiting")])
async def test_any_answer_but_a_gateways_counts_as_answering(start, upstream, reply, status, state):
    upstream.always = reply(status)
    server = await start("openai_model", **block(upstream))
    (endpoint,) = (await server.get("/gymctl/upstream"))[1]
    assert endpoint["state"] == state
    assert upstream.asked[0].path == "/v1/models"


async def test_a_name_that_does_not_resolve_is_given_up(start, upstream):
    server = await start(
        "openai_model", **{**block(upstream), "openai_base_url": "http://nowhere.invalid/v1"}
    )
    for _ in range(2):
        (endpoint,) = (await server.get("/gymctl/upstream"))[1]
        assert endpoint["state"] == "unresolvable"


async def test_nulls_are_absent_at_every_level_and_unknown_keys_are_unknown_even_so(start, upstream):
    server = await start("openai_model", **block(upstream))
    schema = {"type": "object", "properties": {"day": None, "city": {"type": "string"}}}
    row = {
        "input": [{"role": "user", "content": "x", "status": None}],
        "max_output_tokens": None,
        "metadata": {"a": "b", "c": None},
        "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": None}],
    }
    assert (await server.post("/v1/responses", row))[0] == 200
    assert upstream.asked[0].json == {
        "input": [{"role": "user", "content": "x"}],
        "metadata": {"a": "b"},
        "tools": [
            {
                "type": "function",
                "name": "f",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            }
        ],
        "model": "tiny-1",
    }
    status, answer = await server.post("/v1/responses", {**row, "colour": None})
    assert status == 422
    assert answer["detail"][0]["loc"] == ["body", "colour"]


async def test_fields_that_chat_cannot_carry_are_500_and_name_the_field(start, upstream):
    server = await start("openai_model", **block(upstream, upstream_dialect="chat"))
    status, answer = await server.post("/v1/responses", {"input": "x", "previous_response_id": "r"})
    assert status == 500
    assert "previous_response_id" in answer
    assert upstream.asked == []
