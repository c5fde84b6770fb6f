"""A vLLM that needs no model: tokens are bytes, answers are planned, and the server's habits are vLLM's.

async with VLLMUpstream(max_model_len=100) as vllm:
    vllm.say(text="Hi.", reasoning="hm")          # the next answers; then "Hi." for ever
    ...
    assert vllm.bodies("/v1/chat/completions")[-1]["model"] == "tiny"

As vLLM does: `logprobs` with `token_id:<n>` names, `return_token_ids`, /tokenize of messages and of text,
reasoning in its own field, a 400 in vLLM's words when the conversation does not fit. Like a training
engine it takes `required_prefix_token_ids`, if `knows_prefixes`. If it `samples_anew`, its tokens are others
than its template makes of their text, and only the token ids on the last assistant message keep them.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

END = 256
"""The token after every message."""
ANEW = 1000
"""Added to the tokens of an endpoint that samples others than its template makes."""


class VLLMUpstream:
    def __init__(
        self,
        *,
        max_model_len: int = 10_000,
        knows_prefixes: bool = False,
        samples_anew: bool = False,
        plan: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        """plan: the answer to a request, as `say` takes it; for many conversations at once."""
        self.max_model_len = max_model_len
        self.knows_prefixes = knows_prefixes
        self.samples_anew = samples_anew
        self._plan = plan
        self._address = address
        self.reasoning_field = "reasoning"
        self.asked: list[tuple[str, dict[str, Any], Mapping[str, str]]] = []
        self.change: Any = None
        """Called with every answer before it is sent: `change(path, answer)`."""
        self.refusal: tuple[int, Any] | None = None
        """Status and body of every POST but /tokenize."""
        self._planned: deque[dict[str, Any]] = deque()

    def say(self, text: str = "", **more: Any) -> None:
        """Plan an answer. more: `reasoning`, `tool_calls` [(id, name, arguments)], `finish_reason`."""
        self._planned.append({"text": text, **more})

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body, _ in self.asked if asked == path]

    async def __aenter__(self) -> VLLMUpstream:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", self._post)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, *self._address)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.url = f"{self.origin}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": []})

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((request.path, body, {k.lower(): v for k, v in request.headers.items()}))
        if request.path != "/tokenize" and self.refusal is not None:
            status, content = self.refusal
            return web.json_response(content, status=status)
        answers = {
            "/tokenize": self._tokenize,
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completions,
            "/v1/responses": self._responses,
        }
        if request.path not in answers:
            return web.json_response({"detail": "Not Found"}, status=404)
        answer = answers[request.path](body)
        if answer is None:
            return web.json_response(self._too_long(body), status=400)
        if self.change is not None:
            self.change(request.path, answer)
        return web.json_response(answer)

    def _too_long(self, body: dict[str, Any]) -> dict[str, Any]:
        count = len(self._prompt(body))
        message = (
            f"This model's maximum context length is {self.max_model_len} tokens. However, your request has "
            f"{count} input tokens. Please reduce the length of the input messages."
        )
        return {
            "error": {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}
        }

    def _prompt(self, body: dict[str, Any]) -> list[int]:
        prompt = body.get("prompt")
        if isinstance(prompt, list):
            return prompt
        if prompt is not None:
            return list(prompt.encode())
        ids = rendered(body["messages"], body.get("tools"))
        prefix = self._prefix(body)
        if prefix:
            # As training engines do: the old tokens, then what the template makes of the new messages.
            known = max(place for place, m in enumerate(body["messages"]) if m["role"] == "assistant")
            ids = [*prefix, *ids[len(rendered(body["messages"][: known + 1], body.get("tools"))) :]]
        return ids[:-1] if body.get("continue_final_message") else [*ids, *b"<assistant>"]

    def _prefix(self, body: dict[str, Any]) -> list[int] | None:
        """The tokens of the turns before, where they are told and wanted."""
        if self.knows_prefixes:
            return body.get("required_prefix_token_ids")
        answers = [message for message in body["messages"] if message["role"] == "assistant"]
        if self.samples_anew and answers and "prompt_token_ids" in answers[-1]:
            return [*answers[-1]["prompt_token_ids"], *answers[-1]["generation_token_ids"]]
        return None

    def _tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens = self._prompt(body)
        return {"count": len(tokens), "max_model_len": self.max_model_len, "tokens": tokens}

    def _next(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._plan is not None:
            return self._plan(body)
        return self._planned.popleft() if self._planned else {"text": "Hi."}

    def _chat(self, body: dict[str, Any]) -> dict[str, Any] | None:
        prompt = self._prompt(body)
        if len(prompt) >= self.max_model_len:
            return None
        plan = self._next(body)
        message: dict[str, Any] = {"role": "assistant", "content": plan["text"] or None, "refusal": None}
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in plan.get("tool_calls", ())
        ]
        if plan.get("reasoning"):
            message[self.reasoning_field] = plan["reasoning"]
        generated = _generated(message)
        if self.samples_anew:
            generated = [ANEW + token for token in generated]
        finish = plan.get("finish_reason") or ("tool_calls" if message["tool_calls"] else "stop")
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        if body.get("logprobs") and body.get("top_logprobs") is not None:
            name = "token_id:{}" if body.get("return_tokens_as_token_ids") else "{}"
            entries = [{"token": name.format(t), "logprob": -0.5, "top_logprobs": []} for t in generated]
            choice["logprobs"] = {"content": entries}
        answer = _envelope("chat.completion", body, choice, len(prompt), len(generated))
        answer["prompt_token_ids"] = choice["token_ids"] = None
        if body.get("return_token_ids"):
            answer["prompt_token_ids"], choice["token_ids"] = prompt, generated
        return answer

    def _completions(self, body: dict[str, Any]) -> dict[str, Any] | None:
        prompt = self._prompt(body)
        if len(prompt) >= self.max_model_len:
            return None
        plan = self._next(body)
        generated = list(plan["text"].encode())
        choice: dict[str, Any] = {"index": 0, "text": plan["text"], "finish_reason": "stop", "logprobs": None}
        if body.get("logprobs") is not None:
            name = "token_id:{}" if body.get("return_tokens_as_token_ids") else "{}"
            names = [name.format(token) for token in generated]
            choice["logprobs"] = {"tokens": names, "token_logprobs": [-0.5] * len(generated)}
        if body.get("return_token_ids"):
            choice |= {"token_ids": generated, "prompt_token_ids": prompt}
        return _envelope("text_completion", body, choice, len(prompt), len(generated))

    def _responses(self, body: dict[str, Any]) -> dict[str, Any]:
        part = {"type": "output_text", "text": self._next(body)["text"], "annotations": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return {"id": "resp_1", "object": "response", "output": [{**message, "content": [part]}]}


def rendered(messages: list[dict[str, Any]], tools: Any = None) -> list[int]:
    """The chat template: the tools in front of all, each message with its reasoning before it, END behind."""
    ids = list(json.dumps(tools).encode()) if tools else []
    for message in messages:
        ids += f"<{message['role']}>".encode()
        if message["role"] == "assistant":
            ids += _generated(message)
        else:
            content = message.get("content") or ""
            ids += [*(content if isinstance(content, str) else json.dumps(content)).encode(), END]
    return ids


def _generated(message: dict[str, Any]) -> list[int]:
    thought = message.get("reasoning") or message.get("reasoning_content")
    text = f"<think>{thought}</think>" if thought else ""
    text += message.get("content") or ""
    for call in message.get("tool_calls") or ():
        text += f"<call>{call['function']['name']} {call['function']['arguments']}"
    return [*text.encode(), END]


def _envelope(
    kind: str, body: dict[str, Any], choice: dict[str, Any], prompt: int, generated: int
) -> dict[str, Any]:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": None,
    }
    return {
        "id": "chatcmpl-1",
        "object": kind,
        "created": 1_790_000_000,
        "model": body["model"],
        "choices": [choice],
        "usage": usage,
    }
