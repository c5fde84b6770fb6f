"""CONTRACT 13.3: token ids of `vllm_model`, from each of their sources, and what makes them unusable."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.vllm_model import IDS, TOOL, USER, sent
from fakes.vllm_upstream import VLLMUpstream


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
