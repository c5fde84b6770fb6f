"""The settings of an evaluation (CONTRACT 9.2): in a configuration, or handed over by a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from gymctl.contract.outcomes import CountsAs, FailureName

DEFAULT = "_default"
"""The entry of a mapping that stands for every name without one of its own."""


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _without_nulls(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: inner for key, inner in value.items() if inner is not None}
    return value


def _by_name(value: object) -> object:
    """`num_repeats`: one number for all is the default of a mapping without entries."""
    if isinstance(value, Mapping):
        return _without_nulls(value) or {DEFAULT: 1}
    return {DEFAULT: value}


def _infinity_is_none(value: object) -> object:
    return None if value == float("inf") else value


def _as_list(value: object) -> object:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_no_boolean)]
Limit = Annotated[Seconds | None, BeforeValidator(_infinity_is_none)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[list[Text], BeforeValidator(_as_list, json_schema_input_type=Text | list[Text])]
Value = TypeVar("Value")
ByName = Annotated[dict[str, Value], BeforeValidator(_without_nulls)]
AtLeastOne = Annotated[int, Field(ge=1), BeforeValidator(_no_boolean)]
AtLeastZero = Annotated[int, Field(ge=0), BeforeValidator(_no_boolean)]


class Skills(BaseModel):
    """A folder of skills for the agent."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    path: Text


class EvaluationSettings(BaseModel):
    """Every key of CONTRACT 9.2 under its own name, and `failure_outcomes`, which is ours."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    output_jsonl_fpath: Text | None = Field(None, description="Where the rollouts go.")
    input_jsonl_fpath: Text | None = Field(None, description="Rows instead of the declared datasets.")
    split: Literal["train", "validation", "benchmark"] | None = Field(
        None, description="Which declared datasets."
    )
    agent_name: Text | None = Field(None, description="The agent of every row: `agent_map._default`.")
    agent_map: ByName[Text] = Field({}, description="A row's agent or task source: the agent that runs it.")
    fan_out: ByName[list[Text]] = Field({}, description="A row's agent or task source: all that run it.")
    limit: AtLeastZero | None = Field(None, description="The first rows only; 0: all.")
    """None: all rows. 0, which only a flag can say: none."""
    num_repeats: Annotated[
        dict[str, AtLeastOne],
        BeforeValidator(_by_name, json_schema_input_type=AtLeastOne | dict[str, AtLeastOne] | None),
    ] = Field({DEFAULT: 1}, description="Rollouts per row, also by agent with `_default`.")
    num_repeats_add_seed: StrictBool = Field(False, description="Send each rollout its index as seed.")
    interleave_repeats: StrictBool = Field(False, description="All first rollouts, then all second ones.")
    num_samples_in_parallel: AtLeastOne | None = Field(None, description="Rollouts at once.")
    max_resident_rollout_tasks: AtLeastOne | None = Field(None, description="Rollouts at once.")
    retain_results_in_memory: StrictBool = Field(True, description="For callers of the library.")
    responses_create_params: dict[str, Any] = Field({}, description="Laid over each row's own, key by key.")
    prompt_config: Text | None = Field(None, description="The prompt of rows that bring none.")
    skills: Skills | None = Field(None, description="A folder of skills for the agent.")
    resume_from_cache: StrictBool = Field(False, description="Go on with an output that is there.")
    disable_aggregation: StrictBool = Field(False, description="No aggregate metrics.")
    disable_health_check: StrictBool = Field(False, description="No health check of the rollouts.")
    health_check_workers: AtLeastOne | None = Field(None, description="Processes of the health check.")
    health_check_ignored_checks: Names = Field([], description="Checks to leave out.")
    route_failures_to_sidecar: StrictBool = Field(True, description="A failed rollout does not end the run.")
    count_failure_classes_as_zero: list[Text] = Field([], description="Failures that count as reward 0.")
    count_missing_rollouts_as_zero: StrictBool = Field(False, description="Missing rollouts count as 0.")
    failure_outcomes: Annotated[dict[FailureName, CountsAs], BeforeValidator(_without_nulls)] = Field(
        {}, description="A class of failures, `oom` or `timeout`: failed, or zero (the agent's own doing)."
    )
    require_complete: StrictBool = Field(True, description="A missing rollout is an error.")
    upload_rollouts: StrictBool = Field(True, description="Exporters upload rollouts.")
    environment_routing_mode: Literal["agent", "legacy", "taskset"] = Field(
        "agent", description="How flat rows find their environment server."
    )
    environment_server_name: Text | None = Field(None, description="Every flat row goes to this server.")
    environment_server_routes: ByName[Text] = Field({}, description="By taskset: the environment server.")
    allow_unsupported_pairing: Any = Field(None, description="Rows may go to agents that a verifier refuses.")
    dispatch_budget_s: Limit = Field(None, description="Start no rollout after these seconds.")
    drain_margin_s: Seconds | None = Field(None, description="Seconds to keep for running rollouts.")
    dispatch_longest_first: StrictBool = Field(False, description="On resuming, the slowest first.")
    retry_terminal_timeouts: StrictBool = Field(False, description="On resuming, retry timeouts.")
    retry_invalid_judge_responses: StrictBool = Field(False, description="On resuming, ask the judge again.")
    rollout_collection_driver: Text | None = Field(None, description="`module:function` instead of ours.")
    reuse_existing_data_preparation: StrictBool = Field(False, description="Keep prepared data.")

    @property
    def concurrency(self) -> int | None:
        """Rollouts at once: one that waits for admission would not run either."""
        bounds = (self.num_samples_in_parallel, self.max_resident_rollout_tasks)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def routes(self) -> Mapping[str, str]:
        """`agent_map` with `agent_name` as its default."""
        return self.agent_map if self.agent_name is None else {**self.agent_map, DEFAULT: self.agent_name}


KEYS = tuple(EvaluationSettings.model_fields)
