"""What was seen of a rollout: by its agent, and put together by the collector (CONTRACT 15.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Items = list[dict[str, Any]]
Milliseconds = Annotated[float, Field(ge=0)] | None
Count = Annotated[int, Field(ge=0)] | None


def as_items(given: Any) -> Items:
    """The input of a model call as items that say their type; a text is one message."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list):
        return []
    return [
        {"type": "message", **item}
        if isinstance(item, dict) and "role" in item and "type" not in item
        else item
        for item in given
    ]


class Observed(BaseModel):
    """Unknown keys are refused: evidence that nobody understands is none."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class ModelRef(Observed):
    type: Literal["responses_api_models"] = "responses_api_models"
    name: str


class CallRef(Observed):
    """A model call, as whoever made it can name it."""

    model_call_id: str | None = None
    model_ref: ModelRef | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def _names_a_call(self) -> CallRef:
        if not self.model_call_id and not (self.model_ref is not None and self.response_id):
            raise ValueError("`model_call_id`, or `model_ref` and `response_id`, are needed")
        return self


class Invocation(Observed):
    """One conversation of an agent, or of an agent that it started."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: Literal["completed", "failed", "incomplete", "unknown"] = "unknown"
    duration_ms: Milliseconds = None
    error_type: str | None = None
    model_calls: list[CallRef] = Field(default_factory=list)
    conversation: Items = Field(default_factory=list)


class ToolCall(Observed):
    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: Milliseconds = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    status: Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"] = "unknown"
    error_type: str | None = None


class Sandbox(Observed):
    kind: Literal["sandbox"] = "sandbox"
    role: Literal["agent", "verifier", "environment"]
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: Literal["completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"] = (
        "unknown"
    )
    exit_code: int | None = None
    wall_time_s: Milliseconds = None
    cpu_time_s: Milliseconds = None
    peak_memory_mib: Milliseconds = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class Compaction(Observed):
    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    tokens_before: Count = None
    tokens_after: Count = None
    outcome: Literal["completed", "failed", "aborted", "unknown"] = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: CallRef | None = None
    model_calls: list[CallRef] = Field(default_factory=list)
    after_model_call: CallRef | None = None


class Gap(Observed):
    """Something that could not be seen."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


Record = Annotated[Invocation | ToolCall | Sandbox | Compaction, Field(discriminator="kind")]


class Observations(Observed):
    """`ng_agent_observations`: what an agent saw of one rollout."""

    source: str
    records: list[Record] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @property
    def invocations(self) -> Iterator[Invocation]:
        return (record for record in self.records if isinstance(record, Invocation))

    @model_validator(mode="after")
    def _is_a_tree(self) -> Observations:
        parents: dict[str, str | None] = {}
        for record in self.invocations:
            if record.invocation_id in parents:
                raise ValueError("`invocation_id` must be unique")
            parents[record.invocation_id] = record.parent_invocation_id
        for start in parents:
            seen, current = set[str](), start
            while current in parents and (parent := parents[current]) is not None:
                if current in seen:
                    raise ValueError("`parent_invocation_id` must not go in a circle")
                seen.add(current)
                current = parent
        return self


class Turn(Observed):
    """One answer of a model within an invocation."""

    invocation_id: str
    task_id: str
    rollout_id: str
    turn_no: int = Field(ge=1)
    timestamp: float
    question: Any = None
    answer: Any = None
    reasoning_content: Any = None
    resolved: bool | None = None
    step_count: int = Field(ge=0)
    model_calls: list[CallRef] = Field(default_factory=list)


class CallFacts(Observed):
    response_id: str | None = None
    model_ref: ModelRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: Literal["upstream", "local"] | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: Milliseconds = None


class TokenStats(Observed):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    reasoning_tokens: Count = None
    total_tokens: Count = None
    cached_tokens: Count = None


class ModelCall(Observed):
    model_call_id: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: Milliseconds = None
    request: Any = None
    response: Any = None
    response_metadata: CallFacts = Field(default_factory=CallFacts)
    token_stats: TokenStats = Field(default_factory=TokenStats)


class ToolOutput(ToolCall):
    """A tool call with what the model was told."""

    output: Any = None


class Trajectory(Observed):
    """`ng_trajectory`."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: list[Invocation] = Field(default_factory=list)
    turns: list[Turn] = Field(default_factory=list)
    model_calls: list[ModelCall] = Field(default_factory=list)
    tool_calls: list[ToolOutput] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_one_of_each(self) -> Trajectory:
        _refuse_repeats("invocation_id", [each.invocation_id for each in self.invocations])
        _refuse_repeats(
            "model_call_id", [each.model_call_id for each in self.model_calls if each.model_call_id]
        )
        _refuse_repeats("turn_no", [(each.invocation_id, each.turn_no) for each in self.turns])
        if any((turn.task_id, turn.rollout_id) != (self.task_id, self.rollout_id) for turn in self.turns):
            raise ValueError("a turn is of another rollout")
        return self


def _refuse_repeats(name: str, values: list[Any]) -> None:
    if len(set(values)) != len(values):
        raise ValueError(f"`{name}` must be unique")
