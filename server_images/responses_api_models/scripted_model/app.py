"""Model server whose answers are written down beforehand, with seeded faults, for tests and tool servers.

Every answer says so: model `scripted`, metadata `scripted: "true"`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import orjson
from faults import Fate, Faults, fate
from pydantic import Field
from script import Script, Turn, from_file, from_metadata
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gymctl.contract.part import ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.servers import ServerConfig, json_object
from gymctl.servers.models.dialects import chat_over_responses
from gymctl.servers.models.server import Handler, ModelServer
from gymctl.servers.stack.wire import dumps
from gymctl.transport import ROLLOUT

FATE: ContextVar[Fate] = ContextVar("fate")
MESSAGE_ID = "msg_scripted_"
_CHAT_FIELDS = ("messages", "metadata", "tools")


class ScriptedConfig(ServerConfig):
    script_path: str | None = None
    """YAML or JSONL; a relative path starts at the server's folder. A row's `metadata.script` goes first."""
    seed: int = 0
    faults: Faults = Field(default_factory=Faults)


class ScriptedModel(ModelServer):
    config: ScriptedConfig

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self._scripts: Sequence[Script] = ()

    async def startup(self) -> None:
        if self.config.script_path is not None:
            self._scripts = await asyncio.to_thread(from_file, Path(self.config.script_path))

    async def answer(self, request: Request, handler: Handler) -> Response:
        """Let the request meet its fate, then answer it."""
        mine = fate(self.config.faults, self.config.seed, _content(await json_object(request)))
        FATE.set(mine)
        if mine.delay_seconds:
            await asyncio.sleep(mine.delay_seconds)
        if mine.status is not None:
            raise HTTPException(mine.status, "scripted fault")
        answer = await super().answer(request, handler)
        return Broken(answer) if mine.is_disconnected else answer

    async def responses(self, params: JsonObject) -> JsonObject:
        items = [] if isinstance(params["input"], str) else params["input"]
        turn = self._script(params).turn(_results(items), _answers(items))
        return _response(params, turn, FATE.get())

    async def chat(self, params: JsonObject) -> JsonObject:
        """Sampling options say nothing to a script; the rest is translated."""
        known = {key: params[key] for key in _CHAT_FIELDS if key in params}
        answer = await self.responses(chat_over_responses.responses_params(known))
        return chat_over_responses.completion(answer)

    def _script(self, params: JsonObject) -> Script:
        written = (params.get("metadata") or {}).get("script")
        if written is not None:
            return from_metadata(written)
        question = _first_user_text(params["input"])
        for script in self._scripts:
            if script.when in question:
                return script
        raise LookupError(
            f"no script fits: the row has no `metadata.script`, and "
            f"{self._no_when()} is part of {question[:200]!r}"
        )

    def _no_when(self) -> str:
        path = self.config.script_path
        return "without a `script_path` no text" if path is None else f"no `when` of {path}"


class Broken(Response):
    """An answer that stops half-way: the server closes the connection because the rest does not come."""

    def __init__(self, whole: Response) -> None:
        super().__init__(status_code=whole.status_code, headers=dict(whole.headers))
        self._half = bytes(whole.body)[: len(whole.body) // 2]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._half, "more_body": True})


def _content(body: JsonObject) -> bytes:
    """What a fate hangs on: the request, and the rollout it belongs to, so that repeats of a task differ."""
    content = [ROLLOUT.get(), body]
    try:
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # integers above 64 bits, lone surrogates
        return json.dumps(content, sort_keys=True).encode()


def _results(items: Sequence[JsonObject]) -> int:
    return sum(item.get("type") == "function_call_output" for item in items)


def _answers(items: Sequence[JsonObject]) -> int:
    """Messages that a scripted model said; those of a row's own history are not its."""
    return sum(str(item.get("id") or "").startswith(MESSAGE_ID) for item in items)


def _first_user_text(items: str | Sequence[JsonObject]) -> str:
    if isinstance(items, str):
        return items
    for item in items:
        if item.get("role") == "user":
            content = item.get("content") or ""
            return (
                content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
            )
    return ""


def _response(params: JsonObject, turn: Turn, mine: Fate) -> JsonObject:
    metadata = {key: value for key, value in (params.get("metadata") or {}).items() if key != "script"}
    output = _output(turn, mine)
    words_in, words_out = len(dumps(params["input"]).split()), sum(_words(turn))
    return {
        "id": f"resp_{mine.digest}",
        "created_at": 0,
        "error": None,
        "incomplete_details": None,
        "instructions": params.get("instructions"),
        "metadata": {**metadata, "scripted": "true"},
        "model": "scripted",
        "object": "response",
        "output": output,
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": params.get("tools", []),
        "status": "completed",
        "usage": {
            "input_tokens": words_in,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": words_out,
            "output_tokens_details": {"reasoning_tokens": len(turn.reasoning.split())},
            "total_tokens": words_in + words_out,
        },
        "user": params.get("user"),
    }


def _words(turn: Turn) -> list[int]:
    """Words stand in for tokens."""
    texts = [turn.text, turn.reasoning, *(call.arguments_text for call in turn.calls)]
    return [len(text.split()) for text in texts]


def _output(turn: Turn, mine: Fate) -> list[JsonObject]:
    items: list[JsonObject] = []
    if turn.reasoning:
        summary = [{"type": "summary_text", "text": turn.reasoning}]
        items.append({"id": f"rs_{mine.digest}", "summary": summary, "type": "reasoning"})
    if turn.text or not turn.calls:
        part: dict[str, Any] = {"annotations": [], "text": turn.text, "type": "output_text", "logprobs": None}
        items.append(
            {
                "id": f"{MESSAGE_ID}{mine.digest}",
                "content": [part],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        )
    for index, call in enumerate(turn.calls):
        arguments = call.arguments_text
        items.append(
            {
                "arguments": arguments[: len(arguments) // 2] if mine.is_call_malformed else arguments,
                "call_id": f"call_{mine.digest}_{index}",
                "name": call.name,
                "type": "function_call",
                "id": f"fc_{mine.digest}_{index}",
                "status": "completed",
            }
        )
    return items


app = ScriptedModel.app()
