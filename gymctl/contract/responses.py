"""Responses and chat bodies (CONTRACT 4, 8.1-8.4): what is checked, what passes through.

Bodies stay the JSON objects they came as. The two models here only decide whether a body is acceptable:
top-level keys are closed, items need a `type` or a `role`, what is inside an item passes through untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, model_validator

JsonObject: TypeAlias = dict[str, Any]

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""All three or none, on the last output item of a model call (CONTRACT 8.4)."""


def _input_item(item: JsonObject) -> JsonObject:
    if not isinstance(item.get("type"), str) and not isinstance(item.get("role"), str):
        raise ValueError("an input item needs `type`, or `role` for a message")
    return item


def _typed(entry: JsonObject) -> JsonObject:
    if not isinstance(entry.get("type"), str):
        raise ValueError("`type` is missing")
    return entry


def _message(entry: JsonObject) -> JsonObject:
    if not isinstance(entry.get("role"), str):
        raise ValueError("a chat message needs `role`")
    return entry


InputItem = Annotated[JsonObject, AfterValidator(_input_item)]
OutputItem = Annotated[JsonObject, AfterValidator(_typed)]
Tool = Annotated[JsonObject, AfterValidator(_typed)]
ChatMessage = Annotated[JsonObject, AfterValidator(_message)]


class _Params(BaseModel):
    """Closed top level; null is absent."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            return {
                key: entry for key, entry in value.items() if entry is not None or key not in cls.model_fields
            }
        return value


class ResponsesCreateParams(_Params):
    """`POST /v1/responses`, and `responses_create_params` of a row once its input is known."""

    input: str | list[InputItem]
    background: bool | None = None
    context_management: list[JsonObject] | None = None
    conversation: str | JsonObject | None = None
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    moderation: JsonObject | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: JsonObject | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: JsonObject | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: JsonObject | None = None
    temperature: float | None = None
    text: JsonObject | None = None
    tool_choice: str | JsonObject = "auto"
    tools: list[Tool] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None


class FlatRow(BaseModel):
    """A row as `/run` takes it: what the model is asked, and whatever its verifier needs (CONTRACT 8.5)."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: ResponsesCreateParams


class ChatParams(_Params):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage]
    audio: JsonObject | None = None
    chat_template_kwargs: JsonObject | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, str] | None = None
    modalities: list[str] | None = None
    model: str | None = None
    moderation: JsonObject | None = None
    n: int | None = None
    output_config: JsonObject | None = None
    parallel_tool_calls: bool = True
    prediction: JsonObject | None = None
    presence_penalty: float | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning_effort: str | None = None
    response_format: JsonObject | None = None
    safety_identifier: str | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream: StrictBool | None = None
    stream_options: JsonObject | None = None
    temperature: float | None = None
    thinking: JsonObject | None = None
    tool_choice: str | JsonObject | None = None
    tools: list[Tool] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    verbosity: str | None = None
    web_search_options: JsonObject | None = None


class Response(BaseModel):
    """What an answer must at least be (CONTRACT 8.3); a check only, the answer itself is forwarded."""

    model_config = ConfigDict(extra="allow")

    output: list[OutputItem]


class InputTokensDetails(BaseModel):
    cached_tokens: int | None = None


class OutputTokensDetails(BaseModel):
    reasoning_tokens: int | None = None


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


class Usage(BaseModel):
    """Token counts of one or more model calls; counts that only some upstreams know are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int = 0

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> Usage | None:
        """The usage of a Response, or None if it carries none."""
        usage = response.get("usage")
        if usage is None:
            return None
        details = {
            key: usage.get(key) or {} for key in ("input_tokens_details", "output_tokens_details")
        }  # some upstreams send null for the whole object
        return cls.model_validate({**usage, **details})

    @classmethod
    def total(cls, calls: Sequence[Usage | None]) -> Usage | None:
        """All calls together. Where some did not tell their usage, the sum is that of the others, its details
        are unknown, and `usage_incomplete` says so; None if none told it."""
        known = [usage for usage in calls if usage is not None]
        if not known:
            return None
        total = known[0]
        for usage in known[1:]:
            total += usage
        if len(known) == len(calls):
            return total
        return cls.model_validate(
            {
                **total.model_dump(),
                "input_tokens_details": {},
                "output_tokens_details": {},
                "usage_incomplete": True,
            }
        )

    def __add__(self, other: Usage) -> Usage:
        """Counts add; a detail is unknown (null) as soon as one addend does not know it."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            input_tokens_details=InputTokensDetails(
                cached_tokens=_sum(
                    self.input_tokens_details.cached_tokens, other.input_tokens_details.cached_tokens
                )
            ),
            output_tokens=self.output_tokens + other.output_tokens,
            output_tokens_details=OutputTokensDetails(
                reasoning_tokens=_sum(
                    self.output_tokens_details.reasoning_tokens, other.output_tokens_details.reasoning_tokens
                )
            ),
            total_tokens=self.total_tokens + other.total_tokens,
            **_summed_extras(self.model_extra or {}, other.model_extra or {}),
        )


def _summed_extras(left: Mapping[str, Any], right: Mapping[str, Any]) -> JsonObject:
    summed: JsonObject = {}
    for key in {**left, **right}:
        mine, theirs = left.get(key), right.get(key)
        if isinstance(mine, int | float) and isinstance(theirs, int | float):
            summed[key] = mine + theirs
        else:
            summed[key] = None
    return summed


def drop_nulls(params: JsonObject) -> JsonObject:
    """`responses_create_params` without its nulls, at every level, tool schemas included.

    Tables that give every row every key (Arrow) fill the absent ones with null. A null inside a list stays:
    there it is a value, as in the `enum` of a schema. The argument is not changed, and what holds no null
    is not copied.
    """
    return _without_nulls(params) if _holds_null(params) else params


def _holds_null(value: JsonObject | list[Any]) -> bool:
    """Whether a dictionary in it has a null. Most bodies have none, and a look builds nothing."""
    if isinstance(value, dict):
        for entry in value.values():
            if entry is None or (isinstance(entry, (dict, list)) and _holds_null(entry)):
                return True
    else:
        for entry in value:
            if isinstance(entry, (dict, list)) and _holds_null(entry):
                return True
    return False


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
        is_same = len(cleaned) == len(value) and all(cleaned[key] is value[key] for key in cleaned)
        return value if is_same else cleaned
    if isinstance(value, list):
        entries = [_without_nulls(entry) for entry in value]
        is_same = all(new is old for new, old in zip(entries, value, strict=True))
        return value if is_same else entries
    return value


def for_servers(params: JsonObject) -> JsonObject:
    """`responses_create_params` as one server sends them to another: without nulls, but with the fields that
    NeMo Gym's types want in every function tool, null if need be. The argument is not changed."""
    params = drop_nulls(params)
    tools = params.get("tools")
    if not isinstance(tools, list) or all(_is_whole(tool) for tool in tools):
        return params
    whole = [tool if _is_whole(tool) else {"parameters": None, "strict": None, **tool} for tool in tools]
    return {**params, "tools": whole}


def _is_whole(tool: Any) -> bool:
    is_function = isinstance(tool, dict) and tool.get("type") == "function"
    return not is_function or {"parameters", "strict"} <= tool.keys()


def presentable(output: list[JsonObject]) -> list[JsonObject]:
    """Output items as all clients can read them, whatever an upstream made of them.

    The content of a message is a list of parts; token fields stand there all three or not at all, never null.
    """
    return [_presentable(item) for item in output]


def _presentable(item: JsonObject) -> JsonObject:
    content = item.get("content")
    if item.get("type") == "message" and not isinstance(content, list):
        part = {"type": "output_text", "text": content or "", "annotations": []}
        item = {**item, "content": [part] if content else []}
    given = [field for field in TOKEN_FIELDS if field in item]
    if given and any(item.get(field) is None for field in TOKEN_FIELDS):
        item = {key: value for key, value in item.items() if key not in given}
    return item


def output_text(response: Mapping[str, Any]) -> str:
    """All `output_text` parts of a Response's assistant messages, joined."""
    return "".join(
        part.get("text") or ""
        for item in _items(response, "message")
        for part in _parts(item)
        if part.get("type") == "output_text"
    )


def function_calls(response: Mapping[str, Any]) -> list[JsonObject]:
    """The `function_call` items of a Response, in order."""
    return list(_items(response, "function_call"))


def _items(response: Mapping[str, Any], kind: str) -> Iterator[JsonObject]:
    return (item for item in response.get("output") or () if item.get("type") == kind)


def _parts(item: Mapping[str, Any]) -> Sequence[JsonObject]:
    content = item.get("content") or ()
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else content
