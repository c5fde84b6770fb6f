"""Episodes, tasks and sessions as they cross between client and servers (CONTRACT 5-7)."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ATTEMPT_SUFFIX = re.compile(r"-a[1-9][0-9]*$")


def _rollout_id(value: str) -> str:
    if not ROLLOUT_ID.fullmatch(value):
        raise ValueError("rollout_id must match [A-Za-z0-9][A-Za-z0-9._-]*")
    if _ATTEMPT_SUFFIX.search(value):
        raise ValueError("rollout_id must not end in -a<N>; use attempt")
    return value


class Strict(BaseModel):
    """Wire models whose unknown keys are answered with 422."""

    model_config = ConfigDict(extra="forbid")


class EpisodeId(Strict):
    """Identity of one attempt at one rollout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollout_id: Annotated[str, AfterValidator(_rollout_id)]
    attempt: int = Field(default=0, ge=0)

    @property
    def capture_key(self) -> str:
        """The id in URLs and capture files: `12-0`, `12-0-a1`."""
        return self.rollout_id if self.attempt == 0 else f"{self.rollout_id}-a{self.attempt}"


class TaskId(Strict):
    model_config = ConfigDict(extra="forbid", frozen=True)

    taskset: str = Field(min_length=1)
    task_id: str = Field(min_length=1)


class Task(Strict):
    task_id: TaskId
    task_input: dict[str, Any]


class EpisodeRequest(Strict):
    """`POST /run` of an environment server that speaks the native protocol (CONTRACT 7.2)."""

    episode_id: EpisodeId
    task: Task


class EpisodeFailure(Strict):
    failure_reason: str = Field(max_length=2000)
    terminal: bool
    failure_kind: str | None = None
    stage: str | None = None
    partial_response: dict[str, Any] | None = None


class EpisodeResponse(Strict):
    """Exactly one of `result` and `failure` is set; identities are echoed."""

    episode_id: EpisodeId
    task_id: TaskId
    result: dict[str, Any] | None = None
    failure: EpisodeFailure | None = None


class ResourcesSeed(Strict):
    """Typed body of `POST /seed_session` (CONTRACT 5.2)."""

    resources_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    task_data: dict[str, Any] = Field(default_factory=dict)


class ResourcesSeedResponse(Strict):
    resources_session_id: str
    resources_tools: dict[str, Any] | None = None
    sandbox_access: dict[str, Any] | None = None


class ResourcesClose(Strict):
    resources_session_id: str = Field(min_length=1)
    episode_id: EpisodeId


class ResourcesCloseResponse(Strict):
    resources_session_id: str
