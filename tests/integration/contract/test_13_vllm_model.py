"""CONTRACT 13.3 to 13.5: `vllm_model`, field by field, in front of an endpoint with vLLM's habits."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fakes.contract import cookies_of, sending
from fakes.vllm_upstream import VLLMUpstream

from gymctl.errors import ConfigError, ServerError
from gymctl.servers.inprocess import serving_folder

FOLDER = Path(__file__).resolve().parents[3] / "server_images/responses_api_models/vllm_model"
IDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
USER = {"type": "message", "role": "user", "content": "hi"}
TOOL = {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": True}


class Model:
    """A vllm_model that is served; one session unless told otherwise."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._http = http
        self.jar: dict[str, str] = {}

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        async with self._http.post(self.url + path, json=body, headers=sending(self.jar)) as answer:
            self.jar |= cookies_of(answer)
            return answer.status, await answer.json(content_type=None)

    async def responses(self, *items: dict[str, Any], **params: Any) -> dict[str, Any]:
        status, answer = await self.post("/v1/responses", {"input": list(items) or [USER], **params})
        assert status == 200, answer
        return answer

    async def chat(self, *messages: dict[str, Any], **params: Any) -> dict[str, Any]:
        body = {"messages": list(messages) or [{"role": "user", "content": "hi"}], **params}
        status, answer = await self.post("/v1/chat/completions", body)
        assert status == 200, answer
        return answer

    @property
    def session_id(self) -> str:
        (value,) = self.jar.values()
        return json.loads(base64.b64decode(value.partition(".")[0]))["session_id"]


Serve = Callable[..., Awaitable[Model]]


@pytest.fixture
async def vllm() -> AsyncIterator[VLLMUpstream]:
    async with VLLMUpstream() as upstream:
        yield upstream


@pytest.fixture
async def serve(vllm: VLLMUpstream, http: aiohttp.ClientSession) -> AsyncIterator[Serve]:
    """`await serve(chat_template_kwargs={...})`: a model server with this block."""
    async with AsyncExitStack() as stack:

        async def begin(**block: Any) -> Model:
            settings = {
                "base_url": vllm.url,
                "api_key": "dummy",
                "model": "tiny",
                "return_token_id_information": False,
                "uses_reasoning_parser": True,
                "upstream_unreachable_seconds": 1,
                **block,
            }
            url = await stack.enter_async_context(serving_folder(FOLDER, "policy_model", settings))
            return Model(url, http)

        yield begin


def sent(vllm: VLLMUpstream, path: str = "/v1/chat/completions") -> dict[str, Any]:
    """The body that the endpoint was last sent."""
    return vllm.bodies(path)[-1]


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


async def test_13_3_a_response_comes_of_a_chat_call_with_the_configured_model_and_headers(vllm, serve):
    model = await serve(default_headers={"x-team": "red"})
    answer = await model.responses(model="another", temperature=0.5)
    assert (answer["status"], answer["output"][0]["content"][0]["text"]) == ("completed", "Hi.")
    assert answer["created_at"] == 1_790_000_000
    _, body, headers = vllm.asked[-1]
    assert body == {"model": "tiny", "temperature": 0.5, "messages": [{"role": "user", "content": "hi"}]}
    assert (headers["authorization"], headers["x-team"]) == ("Bearer dummy", "red")


async def test_13_3_a_session_stays_on_the_replica_that_its_id_decides(serve):
    async with VLLMUpstream() as one, VLLMUpstream() as two, VLLMUpstream() as three:
        replicas = [one, two, three]
        model = await serve(base_url=[replica.url for replica in replicas])
        used = set()
        for _ in range(12):
            model.jar = {}
            before = [len(replica.asked) for replica in replicas]
            for _ in range(3):
                await model.responses()
            grown = [len(r.asked) - n for r, n in zip(replicas, before, strict=True)]
            digest = hashlib.sha256(model.session_id.encode()).digest()
            place = int.from_bytes(digest[:8], "big") % 3
            assert grown[place] == 3 and sum(grown) == 3
            used.add(place)
        assert len(used) > 1


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 10 tokens",
        "the model's context length is only 10",
        "max_tokens is too large",
        json.dumps({"error": {"code": "context_length_exceeded", "message": "too long"}}),
    ],
)
async def test_13_3_b95_a_conversation_that_does_not_fit_ends_as_incomplete(vllm, serve, text):
    vllm.refusal = (400, {"message": text})
    model = await serve()
    answer = await model.responses()
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (answer["usage"], answer["output"][0]["content"][0]["text"]) == (None, "")
    choice = (await model.chat())["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", None)
    assert len(vllm.asked) == 2


async def test_13_3_vllms_own_words_for_it_are_known(serve):
    async with VLLMUpstream(max_model_len=20) as small:
        answer = await (await serve(base_url=small.url)).responses({**USER, "content": "long " * 9})
        assert answer["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_13_3_b95_the_upstreams_400_is_passed_through_where_it_is_asked_for(vllm, serve):
    refusal = {"error": {"message": "maximum context length is 10"}}
    vllm.refusal = (400, refusal)
    model = await serve(propagate_context_overflow_errors=True)
    for path, body in (
        ("/v1/responses", {"input": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        assert await model.post(path, body) == (400, refusal)


async def test_13_3_b95_any_other_400_is_500_with_the_upstreams_body_and_without_the_key(vllm, serve):
    vllm.refusal = (400, {"error": {"message": "sk-secret of yours is fine, but no"}})
    model = await serve(api_key="sk-secret", propagate_context_overflow_errors=True)
    status, answer = await model.post("/v1/responses", {"input": "x"})
    assert status == 500
    assert answer.startswith("Hit an exception in VLLMModel___policy_model calling an inner server: b'")
    assert "**** of yours is fine" in answer and "sk-secret" not in answer


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_13_5_reasoning_of_the_upstream_is_an_item_and_think_tags_in_chat(vllm, serve, field):
    vllm.reasoning_field = field
    model = await serve()
    for _ in range(2):
        vllm.say("Sunny.", reasoning="look </think> outside", tool_calls=[("c1", "get", "{}")])
    answer = await model.responses()
    assert kinds(answer) == ["reasoning", "message", "function_call"]
    assert answer["output"][0]["summary"] == [{"type": "summary_text", "text": "look </think> outside"}]
    message = (await model.chat())["choices"][0]["message"]
    assert message["content"] == "<think>look </think> outside</think>Sunny."
    assert "reasoning" not in message and "reasoning_content" not in message


async def test_4_streams_and_messages_keep_session_reasoning_and_text(vllm, serve, http):
    model = await serve(forward_session_id_as_conversation_id=True)
    await model.responses()
    told = {}
    for path, body in (
        ("/v1/responses", {"input": "x", "stream": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
        ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}),
    ):
        vllm.say("Sunny.", reasoning="hm")
        async with http.post(model.url + path, json=body, headers=sending(model.jar)) as answer:
            assert answer.status == 200
            told[path] = await answer.text()
        assert "Sunny." in told[path] and "hm" in told[path]
        assert sent(vllm)["conversation_params"] == {"conversation_id": model.session_id}
    assert "response.completed" in told["/v1/responses"]


async def test_13_5_reasoning_without_a_parser_is_an_error_in_both_dialects(vllm, serve):
    model = await serve(uses_reasoning_parser=False)
    for path, body in (
        ("/v1/responses", {"input": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        vllm.say("Hi.", reasoning="hm")
        status, answer = await model.post(path, body)
        assert status == 500 and "uses_reasoning_parser" in answer
    vllm.say("<think>hm</think>Hi.")
    assert (await model.responses())["output"][0]["content"][0]["text"] == "<think>hm</think>Hi."


HISTORY = (
    USER,
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
    USER,
)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({}, {"content": "Hi.", "reasoning": "hm", "reasoning_content": "hm"}),
        ({"reasoning_field": "reasoning"}, {"content": "Hi.", "reasoning": "hm"}),
        ({"reasoning_field": "reasoning_content"}, {"content": "Hi.", "reasoning_content": "hm"}),
        ({"uses_interleaved_reasoning": False}, {"content": "Hi."}),
        ({"preserve_reasoning_in_assistant_content": True}, {"content": "<think>hm</think>Hi."}),
        ({"uses_reasoning_parser": False}, {"content": "<think>hm</think>Hi."}),
    ],
)
async def test_13_3_reasoning_of_earlier_turns_goes_back_as_the_config_says(vllm, serve, block, message):
    await (await serve(**block)).responses(*HISTORY)
    assert sent(vllm)["messages"][1] == {"role": "assistant", **message}


async def test_13_3_the_environment_names_the_reasoning_field(vllm, serve, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_REASONING_FIELD", "reasoning")
    await (await serve()).responses(*HISTORY)
    assert "reasoning_content" not in sent(vllm)["messages"][1]
    monkeypatch.setenv("NEMO_GYM_REASONING_FIELD", "thoughts")
    with pytest.raises(ConfigError, match="NEMO_GYM_REASONING_FIELD"):
        await serve()


async def test_13_3_developer_messages_become_system_messages_where_asked(vllm, serve):
    developer = {"role": "developer", "content": "be brief"}
    await (await serve()).responses(developer, USER)
    assert sent(vllm)["messages"][0]["role"] == "developer"
    await (await serve(replace_developer_role_with_system=True)).responses(developer, USER)
    assert sent(vllm)["messages"][0] == {"role": "system", "content": "be brief"}


async def test_13_3_a_turn_of_reasoning_alone_is_not_asked_for_more_where_forbidden(vllm, serve):
    items = HISTORY[:2]
    await (await serve()).responses(*items)
    assert len(vllm.asked) == 1
    model = await serve(sequential_reasoning_allowed=False)
    answer = await model.responses(*items)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert (await model.chat({"role": "assistant", "content": None}))["choices"][0]["finish_reason"] == (
        "content_filter"
    )
    assert len(vllm.asked) == 1
    await model.responses(*HISTORY)
    assert len(vllm.asked) == 2


async def test_13_3_chat_template_kwargs_merge_config_request_and_metadata(vllm, serve):
    block = {"chat_template_kwargs": {"a": 1, "b": 1, "c": 1}}
    told = {"metadata": {"chat_template_kwargs": '{"c": 3}'}}
    model = await serve(**block)
    await model.chat(chat_template_kwargs={"b": 2}, **told)
    assert sent(vllm)["chat_template_kwargs"] == {"a": 1, "b": 1, "c": 3}
    model = await serve(**block, forward_request_chat_template_kwargs=True)
    await model.chat(chat_template_kwargs={"b": 2, "c": 2}, **told)
    assert sent(vllm)["chat_template_kwargs"] == {"a": 1, "b": 2, "c": 3}
    await model.responses(metadata={"chat_template_kwargs": '{"d": 4}'})
    assert sent(vllm)["chat_template_kwargs"] == {"a": 1, "b": 1, "c": 1, "d": 4}


async def test_13_3_dropped_chat_template_kwargs_are_told_once(vllm, serve, caplog):
    model = await serve()
    for _ in range(3):
        await model.chat(chat_template_kwargs={"b": 2})
        assert "chat_template_kwargs" not in sent(vllm)
    told = [r for r in caplog.records if "forward_request_chat_template_kwargs" in r.getMessage()]
    assert len(told) == 1


async def test_13_3_extra_body_is_config_below_metadata_below_the_request(vllm, serve):
    model = await serve(extra_body={"top_k": 1, "min_p": 0.1, "temperature": 0.1})
    await model.responses(temperature=0.9, metadata={"extra_body": '{"top_k": 2, "top_p": 0.5}'}, top_p=0.7)
    body = sent(vllm)
    assert {key: body[key] for key in ("top_k", "min_p", "temperature", "top_p")} == {
        "top_k": 2,
        "min_p": 0.1,
        "temperature": 0.9,
        "top_p": 0.7,
    }
    status, answer = await model.post("/v1/responses", {"input": "x", "metadata": {"extra_body": "[1]"}})
    assert status == 500 and "`metadata.extra_body` must be a JSON object" in answer


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({}, "/v1/chat/completions"),
        ({"use_completions_api": True}, "/v1/completions"),
        ({"is_responses_native": True}, "/v1/responses"),
    ],
)
async def test_13_3_sampling_overrides_win_on_every_route(vllm, serve, block, path):
    overrides = {"temperature": 1.0, "top_k": -1}
    model = await serve(sampling_overrides=overrides, extra_body={"top_k": 5}, **block)
    await model.responses(temperature=0.2)
    body = sent(vllm, path)
    assert {key: body[key] for key in overrides} == overrides


async def test_13_3_a_final_assistant_message_is_continued_where_asked(vllm, serve):
    model = await serve(continue_final_assistant_message=True)
    await model.responses(USER, HISTORY[2])
    assert (sent(vllm)["continue_final_message"], sent(vllm)["add_generation_prompt"]) == (True, False)
    await model.responses(USER)
    assert "continue_final_message" not in sent(vllm)


async def test_13_3_the_session_id_is_the_conversation_id_where_asked(vllm, serve):
    model = await serve(forward_session_id_as_conversation_id=True)
    await model.responses()
    assert sent(vllm)["conversation_params"] == {"conversation_id": model.session_id}


async def test_13_3_strict_of_functions_is_removed_and_nothing_else(vllm, serve):
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    await (await serve()).responses(tools=[TOOL], text={"format": schema})
    function = {"name": "get", "parameters": {"type": "object"}}
    assert sent(vllm)["tools"] == [{"type": "function", "function": function}]
    assert sent(vllm)["response_format"]["json_schema"]["strict"] is True


async def test_13_3_a_native_endpoint_gets_the_request_itself(vllm, serve):
    model = await serve(
        is_responses_native=True,
        chat_template_kwargs={"a": 1},
        extra_body={"top_k": 2},
        replace_developer_role_with_system=True,
    )
    answer = await model.responses({"role": "developer", "content": "d"}, USER, max_tool_calls=2)
    assert answer["output"][0]["content"][0]["text"] == "Hi."
    assert sent(vllm, "/v1/responses") == {
        "model": "tiny",
        "input": [{"role": "system", "content": "d"}, USER],
        "max_tool_calls": 2,
        "chat_template_kwargs": {"a": 1},
        "top_k": 2,
    }
    vllm.refusal = (400, {"message": "context length"})
    assert (await model.responses())["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"supply_prefix_token_ids": True}, "return_token_id_information"),
        ({"request_prompt_and_generation_token_ids": True}, "return_token_id_information"),
        (
            {
                "supply_prefix_token_ids": True,
                "use_completions_api": True,
                "return_token_id_information": True,
            },
            "use_completions_api",
        ),
        ({"is_responses_native": True, "return_token_id_information": True}, "return_token_id_information"),
        ({"is_responses_native": True, "sequential_reasoning_allowed": False}, "sequential_reasoning"),
        ({"is_responses_native": True, "use_completions_api": True}, "use_completions_api"),
        ({"use_completions_api": True, "continue_final_assistant_message": True}, "render_chat_template"),
        ({"use_completions_api": True, "tokenizer": "/t"}, "render_chat_template"),
        ({"reasoning_field": "thoughts"}, "reasoning_field"),
        ({"audio_root": "clips"}, "audio_root"),
        ({"base_url": []}, "base_url"),
        ({"api_key": "dummy\n"}, "api_key"),
    ],
)
async def test_13_3_what_cannot_be_obeyed_is_refused_at_the_start_by_name(serve, block, field):
    with pytest.raises(ConfigError) as caught:
        await serve(**block)
    assert field in str(caught.value) + caught.value.what


async def test_13_3_token_ids_of_three_turns_are_contiguous(serve):
    async with VLLMUpstream() as engine:
        model = await serve(base_url=engine.url, return_token_id_information=True)
        conversation: list[dict[str, Any]] = [USER]
        seen: list[int] = []
        for turn in range(3):
            engine.say(f"answer {turn}", reasoning="hm", tool_calls=[(f"c{turn}", "get", "{}")])
            answer = await model.responses(*conversation, tools=[TOOL])
            *before, last = answer["output"]
            assert last["type"] == "function_call"
            assert not any(field in item for item in before for field in IDS)
            assert last["prompt_token_ids"][: len(seen)] == seen
            assert len(last["generation_token_ids"]) == len(last["generation_log_probs"]) > 0
            seen = last["prompt_token_ids"] + last["generation_token_ids"]
            result = {"type": "function_call_output", "call_id": f"c{turn}", "output": "ok"}
            conversation += [*answer["output"], result]
        body = sent(engine)
        assert {key: body[key] for key in ("logprobs", "top_logprobs", "return_tokens_as_token_ids")} == {
            "logprobs": True,
            "top_logprobs": 0,
            "return_tokens_as_token_ids": True,
        }
        assert "return_token_ids" not in body
        replayed = body["messages"][3]
        known = replayed["prompt_token_ids"] + replayed["generation_token_ids"]
        assert known == seen[: len(known)]
        assert len(engine.bodies("/tokenize")) == 3
        assert set(engine.bodies("/tokenize")[-1]) == {"model", "messages", "tools"}


async def test_13_3_token_ids_that_the_endpoint_tells_need_no_tokenize(serve):
    async with VLLMUpstream() as engine:
        model = await serve(
            base_url=engine.url,
            return_token_id_information=True,
            request_prompt_and_generation_token_ids=True,
        )
        completion = await model.chat()
        assert sent(engine)["return_token_ids"] is True
        assert engine.bodies("/tokenize") == []
        choice = completion["choices"][0]
        assert choice["message"]["prompt_token_ids"] == [*b"<user>hi", 256, *b"<assistant>"]
        assert choice["message"]["generation_token_ids"] == [*b"Hi.", 256]
        assert "prompt_token_ids" not in completion and "token_ids" not in choice
        assert choice["logprobs"] is None


async def test_13_3_routed_experts_come_along_from_beside_the_message(serve):
    async with VLLMUpstream() as engine:
        engine.change = lambda path, answer: (
            "choices" in answer and answer["choices"][0].update(routed_experts=[[[1, 2]]])
        )
        answer = await (await serve(base_url=engine.url, return_token_id_information=True)).responses()
        assert answer["output"][-1]["routed_experts"] == [[[1, 2]]]


async def test_13_3_a_bundle_on_the_message_comes_first(serve):
    bundle = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-0.1, -0.2]}

    def put(path: str, answer: dict[str, Any]) -> None:
        answer["choices"][0]["message"] |= {**bundle, "routed_experts": "AAA"}
        answer["choices"][0]["logprobs"] = None

    async with VLLMUpstream() as engine:
        engine.change = put
        answer = await (await serve(base_url=engine.url, return_token_id_information=True)).responses()
        item = answer["output"][-1]
        assert {key: item[key] for key in (*IDS, "routed_experts")} == {**bundle, "routed_experts": "AAA"}
        assert engine.bodies("/tokenize") == []


def _partial_bundle(answer: dict[str, Any]) -> None:
    answer["choices"][0]["message"]["prompt_token_ids"] = [1]


def _half_told(answer: dict[str, Any]) -> None:
    answer["prompt_token_ids"] = [1]


def _disagreeing_ids(answer: dict[str, Any]) -> None:
    answer["prompt_token_ids"], answer["choices"][0]["token_ids"] = [1], [2]


def _disagreeing_bundle(answer: dict[str, Any]) -> None:
    _disagreeing_ids(answer)
    bundle = {"prompt_token_ids": [1], "generation_token_ids": [3], "generation_log_probs": [0.0]}
    answer["choices"][0]["message"] |= bundle


def _no_logprobs(answer: dict[str, Any]) -> None:
    answer["choices"][0]["logprobs"] = None


def _plain_names(answer: dict[str, Any]) -> None:
    answer["choices"][0]["logprobs"]["content"][0]["token"] = "Hi"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_partial_bundle, "without generation_token_ids"),
        (_half_told, "only half of the token ids"),
        (_disagreeing_ids, "not the tokens of its log probabilities"),
        (_disagreeing_bundle, "not the same"),
        (_no_logprobs, "no log probabilities"),
        (_plain_names, "token_id:"),
    ],
)
async def test_13_3_b94_token_ids_that_are_partial_or_disagree_are_500(vllm, serve, spoil, words):
    vllm.change = lambda path, answer: spoil(answer) if "chat" in path else None
    model = await serve(return_token_id_information=True)
    status, answer = await model.post("/v1/responses", {"input": "x"})
    assert status == 500 and words in answer


async def test_13_3_several_choices_have_no_token_ids(serve):
    model = await serve(return_token_id_information=True)
    body = {"messages": [{"role": "user", "content": "x"}], "n": 2}
    status, answer = await model.post("/v1/chat/completions", body)
    assert status == 500 and "`n` is 2" in answer


@pytest.mark.parametrize("knows", [True, False])
async def test_13_3_known_tokens_are_supplied_and_their_use_is_proved(serve, knows):
    async with VLLMUpstream(knows_prefixes=knows) as engine:
        model = await serve(
            base_url=engine.url,
            return_token_id_information=True,
            request_prompt_and_generation_token_ids=True,
            supply_prefix_token_ids=True,
        )
        answer = await model.responses()
        assert "required_prefix_token_ids" not in sent(engine)
        (item,) = answer["output"]
        if not knows:
            item["prompt_token_ids"][0] += 1  # what this template would not make of the text again
        known = item["prompt_token_ids"] + item["generation_token_ids"]
        status, second = await model.post("/v1/responses", {"input": [USER, item, USER]})
        assert sent(engine)["required_prefix_token_ids"] == known
        if knows:
            assert second["output"][-1]["prompt_token_ids"][: len(known)] == known
        else:
            assert status == 500 and "stock vLLM" in second


async def test_13_3_completions_get_the_text_of_one_user_message(vllm, serve):
    model = await serve(use_completions_api=True, extra_body={"top_k": 3})
    vllm.say("<think>hm</think>Paris.")
    answer = await model.responses(
        {"role": "system", "content": "Be brief."}, USER, max_output_tokens=9, metadata={"a": "b"}
    )
    assert kinds(answer) == ["reasoning", "message"]
    assert sent(vllm, "/v1/completions") == {
        "model": "tiny",
        "prompt": "Be brief.\n\nhi",
        "max_tokens": 9,
        "top_k": 3,
    }
    for body, words in (
        ({"input": [USER, HISTORY[2], USER]}, "render_chat_template"),
        ({"input": [USER], "tools": [TOOL]}, "render_chat_template"),
        ({"input": [USER], "metadata": {"audio_data": "data:,"}}, "text only"),
    ):
        status, error = await model.post("/v1/responses", body)
        assert status == 500 and words in error


@pytest.mark.parametrize("tells", [True, False])
async def test_13_3_completions_tell_token_ids(vllm, serve, tells):
    def as_older_servers_do(path: str, answer: dict[str, Any]) -> None:
        if path == "/v1/completions" and not tells:
            del answer["choices"][0]["token_ids"], answer["choices"][0]["prompt_token_ids"]

    vllm.change = as_older_servers_do
    model = await serve(use_completions_api=True, return_token_id_information=True)
    item = (await model.responses())["output"][-1]
    assert item["prompt_token_ids"] == list(b"hi")
    assert item["generation_token_ids"] == list(b"Hi.")
    assert item["generation_log_probs"] == [-0.5] * 3
    assert len(vllm.bodies("/tokenize")) == (0 if tells else 1)


async def test_13_3_without_a_tokenizer_the_endpoint_renders_the_prompt(vllm, serve):
    model = await serve(use_completions_api=True, render_chat_template=True, chat_template_kwargs={"a": 1})
    await model.responses(*HISTORY, tools=[TOOL])
    asked = sent(vllm, "/tokenize")
    assert asked["chat_template_kwargs"] == {"a": 1} and len(asked["tools"]) == 1
    assert bytes(t for t in sent(vllm, "/v1/completions")["prompt"] if t < 256).endswith(b"<assistant>")


async def test_13_3_a_tokenizer_folder_renders_the_prompt(vllm, serve, tmp_path):
    template = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<bot{{ a }}>{% endif %}"
    )
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "bos_token": {"content": "<s>"}})
    )
    block = {"use_completions_api": True, "render_chat_template": True, "chat_template_kwargs": {"a": 7}}
    model = await serve(**block, tokenizer=str(tmp_path), continue_final_assistant_message=True)
    await model.responses(USER)
    assert sent(vllm, "/v1/completions")["prompt"] == "<s><user>hi<bot7>"
    assert sent(vllm, "/v1/completions")["add_special_tokens"] is False
    await model.responses(USER, HISTORY[2])
    assert sent(vllm, "/v1/completions")["prompt"] == "<s><user>hi<assistant>Hi."
    with pytest.raises(ServerError, match="names no folder"):
        await serve(**block, tokenizer="org/model")


CLIP = base64.b64encode(b"RIFF").decode()


@pytest.mark.parametrize(
    ("metadata", "clips"),
    [
        ({"audio_data": "data:audio/wav;base64,AA"}, ["data:audio/wav;base64,AA"]),
        ({"audio_path": "a.wav"}, [f"data:audio/wav;base64,{CLIP}"]),
        ({"audio_paths": '["a.wav", "b.MP3"]'}, [f"data:audio/{k};base64,{CLIP}" for k in ("wav", "mpeg")]),
    ],
)
async def test_13_3_audio_stands_before_the_text_of_the_last_user_message(
    vllm, serve, tmp_path, metadata, clips
):
    for name in ("a.wav", "b.MP3"):
        (tmp_path / name).write_bytes(b"RIFF")
    model = await serve(audio_root=str(tmp_path))
    await model.responses(USER, HISTORY[2], {**USER, "content": "what?"}, HISTORY[2], metadata=metadata)
    parts = [{"type": "audio_url", "audio_url": {"url": clip}} for clip in clips]
    assert sent(vllm)["messages"][2]["content"] == [*parts, {"type": "text", "text": "what?"}]
    assert "metadata" not in sent(vllm)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"audio_data": "data:,", "audio_path": "a.wav"}, "more than once"),
        ({"audio_path": "none.wav"}, "cannot be read"),
        ({"audio_path": "a.txt"}, "ending"),
        ({"audio_path": "../a.wav"}, "outside"),
        ({"audio_paths": "a.wav"}, "JSON list"),
    ],
)
async def test_13_3_audio_that_cannot_be_had_is_an_error(vllm, serve, tmp_path, metadata, words):
    status, answer = await (await serve(audio_root=str(tmp_path))).post(
        "/v1/responses", {"input": "x", "metadata": metadata}
    )
    assert status == 500 and words in answer
    assert vllm.asked == []


async def test_13_3_an_endpoint_file_moves_the_endpoint(vllm, serve, http, tmp_path):
    file = tmp_path / "endpoint"
    async with VLLMUpstream() as other:
        model = await serve(endpoint_file=str(file), endpoint_check_interval_s=0, endpoint_stale_grace_s=0.3)
        await model.responses()
        assert len(vllm.asked) == 1
        file.write_text(f"{other.url}\n")
        async with http.get(f"{model.url}/gymctl/upstream") as answer:
            (state,) = await answer.json()
        assert (state["key"], state["url"], state["state"]) == ("endpoint_file", other.url, "answering")
        await model.responses()
        file.unlink()
        await model.responses()
        assert (len(vllm.asked), len(other.asked)) == (1, 2)
        await asyncio.sleep(0.35)
        status, answer = await model.post("/v1/responses", {"input": "x"})
        assert status == 500 and "endpoint_file" in answer
        file.write_text(vllm.url)
        await model.responses()
        assert len(vllm.asked) == 2


async def test_13_3_an_endpoint_that_is_gone_is_looked_up_before_a_call_fails(vllm, serve, tmp_path):
    async with VLLMUpstream() as gone:
        pass
    file = tmp_path / "endpoint"
    file.write_text(gone.url)
    block = {"endpoint_file": str(file), "endpoint_connection_retries": 1}
    model = await serve(**block)
    call = asyncio.create_task(model.responses())
    await asyncio.sleep(0.1)
    file.write_text(vllm.url)  # within the interval in which the file is not looked at by itself
    await call
    assert len(vllm.asked) == 1
    file.write_text(gone.url)
    begin = time.monotonic()
    status, _ = await (await serve(**block)).post("/v1/responses", {"input": "x"})
    assert status == 500 and time.monotonic() - begin < 3


async def test_13_4_what_chat_cannot_carry_is_500_and_names_it(vllm, serve):
    model = await serve()
    for body, word in (
        ({"input": "x", "previous_response_id": "r"}, "previous_response_id"),
        ({"input": [{"type": "mcp_call"}]}, "mcp_call"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "web_search"),
    ):
        status, answer = await model.post("/v1/responses", body)
        assert status == 500 and word in answer
    assert vllm.asked == []
