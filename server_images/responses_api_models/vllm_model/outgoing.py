"""A chat request as vLLM is to get it: what the config adds, moves, takes away and forces (CONTRACT 13.3).

Later wins, and each step is one function below:

    messages       developer -> system, reasoning of earlier turns out of band, audio of the row
    chat_template_kwargs   config < request (if forwarded) < metadata
    token ids      what the endpoint needs to be asked for
    extra_body     config < metadata, and only where the request is silent
    sampling_overrides     over everything
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

import audio
from vllm_settings import VLLMModelConfig

from gymctl.contract.responses import TOKEN_FIELDS, JsonObject
from gymctl.servers.models.dialects import reasoning
from gymctl.servers.models.server import ConversionError

logger = logging.getLogger("gymctl.server")

TOKEN_REQUEST: JsonObject = {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}


class Outgoing:
    """Makes the bodies of one server's calls."""

    def __init__(self, config: VLLMModelConfig) -> None:
        self._config = config
        self._has_warned = False

    def chat(self, params: JsonObject, session_id: str) -> JsonObject:
        """Reads audio files that the metadata names: call it in a thread where there are any."""
        config = self._config
        metadata = dict(params.get("metadata") or {})
        body: JsonObject = {**params, "model": config.model}
        body["messages"] = [self._message(message) for message in params["messages"]]
        if tools := params.get("tools"):
            body["tools"] = [_without_strict(tool) for tool in tools]
        self._set_template_kwargs(body, metadata)
        if config.continue_final_assistant_message and _ends_with_assistant(body["messages"]):
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if config.return_token_id_information:
            body |= TOKEN_REQUEST
            if config.request_prompt_and_generation_token_ids:
                body["return_token_ids"] = True
        if clips := audio.urls(metadata, config.audio_root):
            body["messages"] = audio.inserted(body["messages"], clips)
            _set_metadata(body, {key: text for key, text in metadata.items() if key not in audio.KEYS})
        return self.finished(body, metadata, session_id)

    def native(self, params: JsonObject, session_id: str) -> JsonObject:
        """A Responses request for an endpoint that speaks Responses itself."""
        metadata = dict(params.get("metadata") or {})
        if named := audio.keys_in(metadata):
            raise ConversionError(f"`metadata.{named[0]}` does not go with `is_responses_native`")
        body: JsonObject = {**params, "model": self._config.model}
        if self._config.replace_developer_role_with_system and isinstance(params["input"], list):
            body["input"] = [_developer_as_system(item) for item in params["input"]]
        self._set_template_kwargs(body, metadata)
        return self.finished(body, metadata, session_id)

    def finished(self, body: JsonObject, metadata: Mapping[str, str], session_id: str) -> JsonObject:
        """The last steps, which every body takes."""
        config = self._config
        extra = {**(config.extra_body or {}), **_object(metadata, "extra_body")}
        body = {**extra, **body}
        if config.forward_session_id_as_conversation_id:
            given = body.get("conversation_params") or {}
            body["conversation_params"] = {**given, "conversation_id": session_id}
        body |= config.sampling_overrides or {}
        if config.return_token_id_information and body.get("n", 1) not in (None, 1):
            raise ConversionError(
                f"`n` is {body['n']}: with `return_token_id_information` there is one choice"
            )
        if config.supply_prefix_token_ids and (prefix := known_prefix(body.get("messages") or [])):
            body["required_prefix_token_ids"] = prefix
        return body

    def template_kwargs(self, body: Mapping[str, object], metadata: Mapping[str, str]) -> JsonObject:
        config = self._config
        asked = body.get("chat_template_kwargs")
        if asked and not config.forward_request_chat_template_kwargs:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "a request's `chat_template_kwargs` are dropped, as those of all further requests; "
                    "`forward_request_chat_template_kwargs: true` forwards them"
                )
            asked = None
        told = _object(metadata, "chat_template_kwargs")
        return {**(config.chat_template_kwargs or {}), **(asked or {}), **told}  # type: ignore[dict-item]

    def _set_template_kwargs(self, body: JsonObject, metadata: Mapping[str, str]) -> None:
        kwargs = self.template_kwargs(body, metadata)
        body.pop("chat_template_kwargs", None)
        if kwargs:
            body["chat_template_kwargs"] = kwargs

    def _message(self, message: JsonObject) -> JsonObject:
        config = self._config
        if config.replace_developer_role_with_system:
            message = _developer_as_system(message)
        if message["role"] != "assistant" or not config.uses_reasoning_parser:
            return message
        if config.preserve_reasoning_in_assistant_content:
            return message
        apart, rest = _out_of_band(message)
        if apart and config.uses_interleaved_reasoning:
            rest |= dict.fromkeys(config.reasoning_fields, apart)
        return rest


def known_prefix(messages: list[JsonObject]) -> list[int] | None:
    """All tokens up to the end of the last answer whose ids are known, if it is in the conversation."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            if any(message.get(field) is None for field in TOKEN_FIELDS):
                return None
            return [*message["prompt_token_ids"], *message["generation_token_ids"]]
    return None


def asks_for_nothing(messages: list[JsonObject]) -> bool:
    """The conversation ends with an answer that holds neither text nor calls: a turn of reasoning alone."""
    last = messages[-1] if messages else {"role": "user"}
    return last["role"] == "assistant" and not last.get("content") and not last.get("tool_calls")


def _out_of_band(message: JsonObject) -> tuple[str, JsonObject]:
    """The reasoning of an assistant message, and the message without it."""
    rest = {key: value for key, value in message.items() if key not in ("reasoning_content", "reasoning")}
    known = message.get("reasoning_content") or message.get("reasoning")
    thoughts = [known] if known else []
    content = message.get("content")
    if isinstance(content, str):
        inside, rest["content"] = reasoning.split(content)
        thoughts += inside
    elif content:
        parts = [(part, *reasoning.split(part.get("text") or "")) for part in content]
        rest["content"] = [{**part, "text": text} if inside else part for part, inside, text in parts]
        thoughts += [thought for _, inside, _ in parts for thought in inside]
    return "\n".join(thoughts), rest


def _developer_as_system(message: JsonObject) -> JsonObject:
    return {**message, "role": "system"} if message.get("role") == "developer" else message


def _ends_with_assistant(messages: list[JsonObject]) -> bool:
    return bool(messages) and messages[-1]["role"] == "assistant"


def _without_strict(tool: JsonObject) -> JsonObject:
    function = tool.get("function")
    if not isinstance(function, dict) or "strict" not in function:
        return tool
    return {**tool, "function": {key: value for key, value in function.items() if key != "strict"}}


def _set_metadata(body: JsonObject, metadata: JsonObject) -> None:
    body["metadata"] = metadata
    if not metadata:
        del body["metadata"]


def _object(metadata: Mapping[str, str], key: str) -> JsonObject:
    """A JSON object that metadata holds as text."""
    text = metadata.get(key)
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConversionError(f"`metadata.{key}` must be a JSON object, got {text!r:.200}")
    return value
