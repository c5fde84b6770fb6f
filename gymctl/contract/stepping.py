"""What a step-style resources server and an agent that plays it say to each other (CONTRACT 5.7)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat

STEP_REQUEST_ID = "_ng_step_request_id"
"""In the body of `/step`: a request with the same id is answered with the first one's answer."""
STEP_IDEMPOTENCY = "supports_step_idempotency"
EXPLICIT_CLOSE = "supports_explicit_close"
"""In the `info` of `/reset`, true: what the server can do, and the agent may then use."""
TOOL_OUTPUTS = "tool_outputs"
"""In the `info` of `/step`: the outputs of the model's tool calls, `[{call_id, output}]`."""
CLEANUP_WARNING = "cleanup_warning"
"""In the `info` of a scored episode that could not be released."""

Info = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]


class Reset(BaseModel):
    """The start of an episode. Without an observation, the row's input says all there is to say."""

    observation: str | None = None
    info: Info = Field(default_factory=dict)

    def offers(self, capability: str) -> bool:
        return self.info.get(capability) is True


class Step(BaseModel):
    """What came of one answer of the model. JSON has no NaN, so a reward must be a finite number."""

    observation: str | None = None
    reward: FiniteFloat = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Info = Field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        return self.terminated or self.truncated
