"""Model server for vLLM endpoints: Responses and chat in front, token ids and reasoning kept."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import audio
import completions
import token_sources
from outgoing import Outgoing, asks_for_nothing
from replicas import Replicas
from starlette.requests import Request
from starlette.responses import Response
from vllm_settings import VLLMModelConfig

from gymctl.contract.part import ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.servers import InnerServerError
from gymctl.servers.models.capture import OVERFLOW, answered_here
from gymctl.servers.models.dialects import chat_to_responses, reasoning, responses_to_chat
from gymctl.servers.models.endpoints import Probe
from gymctl.servers.models.server import ConversionError, Handler, ModelServer, parsed
from gymctl.servers.stack.wire import dumps
from gymctl.transport import Answer

if TYPE_CHECKING:
    from chat_template import ChatTemplate

logger = logging.getLogger("gymctl.server")

SESSION: ContextVar[str] = ContextVar("vllm_model_session")
_OVERFLOW_WORDS = (b"context length", b"max_tokens", b"context_length_exceeded", b"maximum model length")
"""Of a 400 that says that the conversation does not fit; vLLM words it in several ways."""
_PROMPT_FIELDS = (
    *("model", "messages", "tools", "chat_template", "chat_template_kwargs", "mm_processor_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens", "required_prefix_token_ids"),
)
"""What of a chat request decides over its prompt; /tokenize must be asked with the same."""


class ContextOverflow(InnerServerError):
    """The conversation does not fit into the model's context; answered with the upstream's own 400."""


class VLLMModel(ModelServer):
    config: VLLMModelConfig

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self._replicas = Replicas(self.client.transport, self.config)
        self._outgoing = Outgoing(self.config)
        self._probed = self._replicas.urls
        self._template = self._own_template()
        if self.config.sampling_overrides:
            logger.info("every request is sampled with %s", self.config.sampling_overrides)
        if self.config.render_chat_template and not self.config.use_completions_api:
            logger.warning("`render_chat_template` does nothing without `use_completions_api: true`")

    def _own_template(self) -> ChatTemplate | None:
        config = self.config
        if not (config.use_completions_api and config.render_chat_template) or config.tokenizer is None:
            return None
        from chat_template import ChatTemplate  # jinja2 costs the start of those that do not need it

        return ChatTemplate(config.tokenizer)

    async def answer(self, request: Request, handler: Handler) -> Response:
        SESSION.set(request.session["session_id"])
        try:
            return await super().answer(request, handler)
        except ContextOverflow as error:
            kind = error.answer.header("content-type") or "application/json"
            return Response(error.answer.body, status_code=error.answer.status, media_type=kind)

    async def _get_upstream(self, request: Request) -> Response:
        """Whether the endpoints answer that calls go to; an endpoint file may name others than the config."""
        if self.config.endpoint_file is not None:
            self._replicas.of(SESSION.get(""))
            if self._replicas.urls != self._probed:
                self._probed = self._replicas.urls
                self._probe = Probe(self.client.transport, self._probed, self.config.upstream_proxy)
        return await super()._get_upstream(request)

    async def responses(self, params: JsonObject) -> JsonObject | bytes:
        config = self.config
        if config.is_responses_native:
            return await self._native(params)
        chat = responses_to_chat.chat_request(params, keep_token_ids=config.return_token_id_information)
        completion = await self._turn(chat)
        rule = "parse" if config.uses_reasoning_parser else "refuse"
        return chat_to_responses.response(completion, params, reasoning=rule)

    async def chat(self, params: JsonObject) -> JsonObject:
        completion = await self._turn(params)
        for choice in completion["choices"]:
            self._bring_reasoning_in(choice["message"])
        return completion

    def _bring_reasoning_in(self, message: JsonObject) -> None:
        """Chat has no standard field for reasoning: callers find it in think tags before the text."""
        apart = message.pop("reasoning_content", None) or message.get("reasoning")
        message.pop("reasoning", None)
        if not apart:
            return
        if not self.config.uses_reasoning_parser:
            raise ConversionError(
                "the upstream answered with reasoning, but `uses_reasoning_parser` is false; "
                "set it, or run vLLM without a reasoning parser"
            )
        message["content"] = reasoning.wrap([apart]) + (message.get("content") or "")

    async def _turn(self, params: JsonObject) -> JsonObject:
        """A chat request's answer with its tokens, reasoning where the endpoint put it."""
        config = self.config
        body = await self._body(params)
        if not config.sequential_reasoning_allowed and asks_for_nothing(body["messages"]):
            answered_here("nothing_asked")
            return self._empty("content_filter")
        if config.use_completions_api:
            return await self._over_completions(body)
        completion = await self._ask("/chat/completions", body)
        if completion is None:
            return self._empty("length")
        chat_to_responses.first_choice(completion)
        prefix = body.get("required_prefix_token_ids")
        if config.return_token_id_information:
            if prefix:
                _check_prefix(completion, prefix)
            await token_sources.put_on_message(completion, lambda: self._prompt_ids(body))
        return completion

    async def _body(self, params: JsonObject) -> JsonObject:
        if not audio.keys_in(params.get("metadata") or {}):
            return self._outgoing.chat(params, SESSION.get())
        if self.config.use_completions_api:
            raise ConversionError(
                "audio does not go with `use_completions_api`: /completions takes text only"
            )
        return await asyncio.to_thread(self._outgoing.chat, params, SESSION.get())

    async def _over_completions(self, chat: JsonObject) -> JsonObject:
        wants_tokens = self.config.return_token_id_information
        prompt = await self._prompt(chat)
        if prompt is None:
            return self._empty("length")
        body = completions.body(chat, prompt, wants_tokens) | (self.config.sampling_overrides or {})
        if self._template is not None:
            body.setdefault("add_special_tokens", False)  # the template has written them
        answer = await self._ask("/completions", body)
        if answer is None:
            return self._empty("length")
        completion = completions.chat_completion(answer, prompt)
        if wants_tokens:
            await token_sources.put_on_message(completion, lambda: self._text_ids(body))
        return completion

    async def _prompt(self, chat: JsonObject) -> completions.Prompt | None:
        """None: the conversation does not fit."""
        messages = chat["messages"]
        if not self.config.render_chat_template:
            return completions.raw_prompt(messages, has_tools=bool(chat.get("tools")))
        completions.check_text_only(messages)
        if self._template is None:
            answer = await self._ask("/tokenize", _prompt_of(chat))
            return None if answer is None else answer.get("tokens")
        kwargs = chat.get("chat_template_kwargs") or {}
        ends = {key: chat[key] for key in ("add_generation_prompt", "continue_final_message") if key in chat}
        return await asyncio.to_thread(
            self._template.render, messages, chat.get("tools"), **{**kwargs, **ends}
        )

    async def _native(self, params: JsonObject) -> JsonObject | bytes:
        answer = await self._post("/responses", self._outgoing.native(params, SESSION.get()))
        if answer is None:
            return chat_to_responses.response(self._empty("length"), params)
        if not isinstance(parsed(answer.body).get("output"), list):
            raise ConversionError(f"the upstream answered with no Response: {answer.body[:500]!r}")
        return answer.body

    async def _ask(self, path: str, body: JsonObject) -> JsonObject | None:
        answer = await self._post(path, body)
        return None if answer is None else parsed(answer.body)

    async def _post(self, path: str, body: JsonObject) -> Answer | None:
        """The answer, or None when the conversation does not fit into the model's context."""
        answer = await self._replicas.post(SESSION.get(), path, dumps(body), accepted=(400,))
        if not answer.is_error:
            return answer
        if not any(words in answer.body for words in _OVERFLOW_WORDS):
            raise InnerServerError(answer)
        answered_here(OVERFLOW, upstream_status=answer.status)
        if self.config.propagate_context_overflow_errors:
            raise ContextOverflow(answer)
        return None

    async def _prompt_ids(self, chat: JsonObject) -> list[int]:
        return await self._tokenized(_prompt_of(chat))

    async def _text_ids(self, body: JsonObject) -> list[int]:
        asked = ("model", "prompt", "add_special_tokens")
        return await self._tokenized({key: body[key] for key in asked if key in body})

    async def _tokenized(self, body: JsonObject) -> Any:
        answer = await self._replicas.post(SESSION.get(), "/tokenize", dumps(body))
        return parsed(answer.body).get("tokens")

    def _empty(self, finish: str) -> JsonObject:
        """The answer of a turn that the endpoint had no part in."""
        message = {"role": "assistant", "content": None}
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.config.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": None,
        }


def _prompt_of(chat: JsonObject) -> JsonObject:
    return {key: chat[key] for key in _PROMPT_FIELDS if key in chat}


def _check_prefix(completion: JsonObject, prefix: list[int]) -> None:
    """An endpoint that does not know `required_prefix_token_ids` ignores it; only its answer can tell."""
    used = completion.get("prompt_token_ids")
    if used is None:
        used = completion["choices"][0]["message"].get("prompt_token_ids")
    if used is None:
        raise ConversionError(
            "`supply_prefix_token_ids` is set, but the upstream does not tell the prompt it used "
            "(`request_prompt_and_generation_token_ids: true` asks for it)"
        )
    if used[: len(prefix)] != prefix:
        raise ConversionError(
            "the upstream's prompt does not begin with the tokens of the turns before, which "
            "`supply_prefix_token_ids` asked for; stock vLLM cannot, training engines can"
        )


app = VLLMModel.app()
