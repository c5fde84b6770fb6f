"""What a `vllm_model` block may hold (CONTRACT 13.3), and which of it goes together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast, get_args

from pydantic import Field, SecretStr, field_validator, model_validator

from gymctl.contract.responses import JsonObject
from gymctl.servers.models.upstream_config import UpstreamConfig

ReasoningField = Literal["both", "reasoning", "reasoning_content"]
REASONING_VARIABLE = "NEMO_GYM_REASONING_FIELD"


class VLLMModelConfig(UpstreamConfig):
    base_url: str | list[str]
    """One URL, or one per replica; a session stays on one of them."""
    api_key: SecretStr
    model: str
    return_token_id_information: bool
    """Token ids and log probabilities on the last output item of each call."""
    uses_reasoning_parser: bool
    """The endpoint runs with a reasoning parser; false: reasoning from it is an error."""
    request_prompt_and_generation_token_ids: bool = False
    propagate_context_overflow_errors: bool = False
    uses_interleaved_reasoning: bool = True
    reasoning_field: ReasoningField | None = None
    preserve_reasoning_in_assistant_content: bool = False
    replace_developer_role_with_system: bool = False
    sequential_reasoning_allowed: bool = True
    is_responses_native: bool = False
    chat_template_kwargs: JsonObject | None = None
    forward_request_chat_template_kwargs: bool = False
    continue_final_assistant_message: bool = False
    extra_body: JsonObject | None = None
    sampling_overrides: JsonObject | None = None
    default_headers: dict[str, str] = Field(default_factory=dict)
    audio_root: str | None = None
    use_completions_api: bool = False
    render_chat_template: bool = False
    tokenizer: str | None = None
    """A folder with a chat template; by default the endpoint renders with its own."""
    supply_prefix_token_ids: bool = False
    endpoint_file: str | None = None
    """Holds the URL that is good now; while it is gone, the last one is used."""
    endpoint_stale_grace_s: float = Field(default=300.0, ge=0)
    endpoint_connection_retries: int | None = Field(default=8, ge=0)
    endpoint_check_interval_s: float = Field(default=10.0, ge=0)
    forward_session_id_as_conversation_id: bool = False

    @property
    def urls(self) -> list[str]:
        return [self.base_url] if isinstance(self.base_url, str) else self.base_url

    @property
    def reasoning_fields(self) -> tuple[str, ...]:
        """The fields of an assistant message in which reasoning goes back to the endpoint."""
        field = self.reasoning_field or _reasoning_field_of_environment()
        return ("reasoning_content", "reasoning") if field == "both" else (field,)

    @field_validator("base_url")
    @classmethod
    def _some_url(cls, value: str | list[str]) -> str | list[str]:
        if not value or (isinstance(value, list) and "" in value):
            raise ValueError("needs at least one URL, and none may be empty")
        return value

    @field_validator("audio_root")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> VLLMModelConfig:
        _reasoning_field_of_environment()
        for problem in self._contradictions():
            raise ValueError(problem)
        return self

    def _contradictions(self) -> Iterator[str]:
        if self.supply_prefix_token_ids and not self.return_token_id_information:
            yield "`supply_prefix_token_ids` needs `return_token_id_information: true`"
        if self.request_prompt_and_generation_token_ids and not self.return_token_id_information:
            yield "`request_prompt_and_generation_token_ids` needs `return_token_id_information: true`"
        if self.supply_prefix_token_ids and self.use_completions_api:
            yield "`supply_prefix_token_ids` does not go with `use_completions_api`"
        if (
            self.continue_final_assistant_message
            and self.use_completions_api
            and not self.render_chat_template
        ):
            yield "`continue_final_assistant_message` with `use_completions_api` needs `render_chat_template`"
        if self.tokenizer is not None and self.use_completions_api and not self.render_chat_template:
            yield "`tokenizer` needs `render_chat_template: true`"
        if self.is_responses_native:
            for field in _NOT_NATIVE:
                if getattr(self, field):
                    yield f"`{field}` does not go with `is_responses_native`: /responses has no counterpart"
            if not self.sequential_reasoning_allowed:
                yield "`sequential_reasoning_allowed: false` does not go with `is_responses_native`"


_NOT_NATIVE = (
    "return_token_id_information",
    "use_completions_api",
    "continue_final_assistant_message",
    "preserve_reasoning_in_assistant_content",
)


def _reasoning_field_of_environment() -> ReasoningField:
    field = os.environ.get(REASONING_VARIABLE) or "both"
    if field not in get_args(ReasoningField):
        raise ValueError(f"{REASONING_VARIABLE} must be one of {get_args(ReasoningField)}, got {field!r}")
    return cast(ReasoningField, field)
