"""CONTRACT 13.3 to 13.5: `vllm_model`, field by field, in front of an endpoint with vLLM's habits."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from fakes.contract import sending, until
from fakes.ports import held_port
from fakes.vllm_model import HISTORY, TOOL, USER, kinds, sent
from fakes.vllm_upstream import VLLMUpstream

from gymctl.errors import ConfigError


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
        for _ in range(20):
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


async def test_13_3_an_endpoint_that_is_gone_is_looked_up_before_a_call_fails(vllm, serve, tmp_path, caplog):
    file = tmp_path / "endpoint"
    with held_port() as port:
        gone = f"http://127.0.0.1:{port}/v1"
        file.write_text(gone)
        block = {"endpoint_file": str(file), "endpoint_connection_retries": 1}
        model = await serve(**block)
        call = asyncio.create_task(model.responses())
        await until(lambda: "trying for" in caplog.text)
        file.write_text(vllm.url)  # within the interval in which the file is not looked at by itself
        await call
        assert len(vllm.asked) == 1
        file.write_text(gone)
        async with asyncio.timeout(30):
            status, _ = await (await serve(**block)).post("/v1/responses", {"input": "x"})
        assert status == 500


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
