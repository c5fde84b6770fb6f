"""Answers of a LiteLLM proxy, and the versions that it may tell."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gymctl.errors import ConfigError
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.transport import Answer, TransportError


def _beside(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"litellm_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


answers, version = _beside("litellm_answers"), _beside("proxy_version")

URL = "http://proxy:4000/health/readiness/details"
MESSAGE = {"type": "message", "id": "m", "role": "assistant", "content": []}


def answered(body: Any, **params: Any) -> Any:
    answer = answers.response(json.dumps(body).encode(), {"input": "x", **params})
    return json.loads(answer) if isinstance(answer, bytes) else answer


def usage_of(**counts: Any) -> Any:
    return answered({"object": "response", "output": [MESSAGE], "usage": counts})["usage"]


def told(status: int, body: Any) -> Answer:
    return Answer(status, (), body if isinstance(body, bytes) else json.dumps(body).encode(), URL)


def test_an_answer_without_faults_stays_the_bytes_that_came() -> None:
    body = (
        b'{ "object":"response", "output": [], "big": 123456789012345678901234567890, "reasoning": '
        b'{"effort": "low"}, "usage": {"input_tokens": 2, "output_tokens": 1, "total_tokens": 3, '
        b'"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": null}}}'
    )
    assert answers.response(body, {"input": "x"}) is body


def test_the_effort_none_becomes_null_and_the_rest_of_reasoning_stays() -> None:
    body = {"output": [], "reasoning": {"effort": "none", "summary": "auto"}}
    assert answered(body)["reasoning"] == {"effort": None, "summary": "auto"}


@pytest.mark.parametrize("details", [{}, {"input_tokens_details": None, "output_tokens_details": None}])
def test_missing_details_of_usage_are_null(details: dict[str, Any]) -> None:
    assert usage_of(input_tokens=9, output_tokens=3, total_tokens=12, **details) == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": None},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 12,
    }


def test_details_that_are_there_are_kept_and_completed() -> None:
    usage = usage_of(
        input_tokens=9,
        input_tokens_details={"cached_tokens": 4, "text_tokens": 9},
        output_tokens=3,
        output_tokens_details={"text_tokens": 1},
        total_tokens=12,
        cost=None,
    )
    assert usage["input_tokens_details"] == {"cached_tokens": 4, "text_tokens": 9}
    assert usage["output_tokens_details"] == {"text_tokens": 1, "reasoning_tokens": None}
    assert usage["cost"] is None


def test_counts_under_the_names_of_chat_are_renamed() -> None:
    usage = usage_of(
        prompt_tokens=9,
        prompt_tokens_details={"cached_tokens": 4},
        completion_tokens=3,
        completion_tokens_details={"reasoning_tokens": 2},
    )
    assert usage == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


def test_cached_tokens_are_found_where_other_providers_tell_them() -> None:
    usage = usage_of(input_tokens=9, output_tokens=3, total_tokens=12, cache_read_input_tokens=5)
    assert usage["input_tokens_details"] == {"cached_tokens": 5}


def test_reasoning_items_get_a_summary_and_content_of_their_own_type() -> None:
    item = {
        "type": "reasoning",
        "id": "r",
        "summary": None,
        "content": [{"type": "output_text", "text": "Hm."}],
    }
    (reasoning, message) = answered({"output": [item, MESSAGE]})["output"]
    assert reasoning["summary"] == []
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert message == MESSAGE


def test_a_chat_answer_becomes_a_response_with_its_calls_and_counts() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm.", "tool_calls": [call]}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }
    answer = answered(body, tools=[{"type": "function", "name": "f"}])
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call"]
    assert (answer["object"], answer["status"], answer["created_at"]) == ("response", "incomplete", 5)
    assert answer["tools"] == [{"type": "function", "name": "f"}]
    assert answer["usage"]["total_tokens"] == 12


def test_a_chat_answer_that_holds_an_output_keeps_it() -> None:
    body = {"id": "x", "object": "chat.completion", "created": 5, "output": [MESSAGE], "choices": []}
    answer = answered(body)
    assert (answer["id"], answer["object"], answer["created_at"]) == ("x", "response", 5)
    assert answer["output"] == [MESSAGE] and "choices" not in answer


@pytest.mark.parametrize("body", [{}, {"output": "no"}, {"object": "chat.completion"}, {"output": [{}]}])
def test_anything_else_is_an_error(body: Any) -> None:
    with pytest.raises(ConversionError):
        answered(body)


@pytest.mark.parametrize(
    "text",
    [
        "1.83.0",
        "v1.83.0-stable",
        "1.83.0.post1",
        "1.83.0-stable.patch.2",
        "1.83",
        "1.84.0rc1",
        "1.100.0",
        "2.0.0",
    ],
)
def test_versions_from_the_needed_one_on_are_accepted(text: str) -> None:
    assert version.accepted(told(200, {"litellm_version": text}), URL) == text


@pytest.mark.parametrize(
    "text",
    [
        "1.82.8",
        "v1.82.99-stable",
        "1.9.0",
        "0.100.0",
        "1.83.0rc1",
        "1.83.0.dev2",
        "1.83.0-nightly",
        "1.84.0\nx",
        "new",
        "1",
    ],
)
def test_older_and_unreadable_versions_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        version.accepted(told(200, {"litellm_version": text}), URL)
    assert str(refused.value) == (
        f"`openai_base_url`: {URL} tells version {text!r}; LiteLLM 1.83.0 or later is needed"
    )


@pytest.mark.parametrize("body", [{}, {"litellm_version": ""}, {"litellm_version": 2}, [], b"<html>"])
def test_an_answer_without_a_version_is_refused(body: Any) -> None:
    with pytest.raises(ConfigError, match=r"tells no `litellm_version`; LiteLLM 1\.83\.0 or later"):
        version.accepted(told(200, body), URL)


@pytest.mark.parametrize(("status", "asks_for_key"), [(401, True), (403, True), (404, False), (307, False)])
def test_an_error_instead_of_a_version_is_refused(status: int, asks_for_key: bool) -> None:
    with pytest.raises(ConfigError, match=f"answers HTTP {status} and no version") as refused:
        version.accepted(told(status, {}), URL)
    assert ("is `openai_api_key` right?" in str(refused.value)) is asks_for_key


class Comes:
    """A proxy that is not there at first, and then tells a version."""

    base_url = "http://proxy:4000/v1"

    def __init__(self, *statuses: int, version: str) -> None:
        self.statuses = list(statuses)
        self.version = version
        self.asked: list[str] = []

    async def look(self, url: str, seconds: float) -> Answer:
        self.asked.append(url)
        status = self.statuses.pop(0) if self.statuses else 200
        if not status:
            raise TransportError("transport_unreachable", url, "refused")
        return told(status, {"litellm_version": self.version})


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "PAUSE_SECONDS", 0.001)


async def test_a_proxy_that_comes_up_is_asked_until_it_tells_its_version(at_once: None) -> None:
    proxy = Comes(0, 503, version="1.83.0")
    checked = version.ProxyVersion(proxy, 30)
    async with checked.checked():
        assert checked.problem == "the version of the LiteLLM proxy is not known: refused"
        await checked.known()
        assert checked.problem is None
    assert proxy.asked == [URL] * 3


async def test_calls_that_wait_for_a_proxy_are_refused_with_it(at_once: None) -> None:
    checked = version.ProxyVersion(Comes(503, version="1.82.7"), 30)
    with pytest.raises(ConfigError, match=r"'1\.82\.7'; LiteLLM 1\.83\.0 or later"):
        async with checked.checked():
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(30)
            with pytest.raises(ConfigError, match=r"'1\.82\.7'"):
                await checked.known()
            assert "'1.82.7'" in (checked.problem or "")
