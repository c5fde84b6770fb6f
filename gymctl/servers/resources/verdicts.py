"""What goes into `/verify` and what comes out of it (CONTRACT 5.4)."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator

from gymctl.contract.responses import output_text

V = TypeVar("V", bound="VerifyResponse")


class Answered(BaseModel):
    """A body that holds a row and what a model made of it. Subclasses declare the row fields they read."""

    model_config = ConfigDict(extra="ignore")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]

    @field_validator("response")
    @classmethod
    def _has_readable_items(cls, response: dict[str, Any]) -> dict[str, Any]:
        output = response.get("output") or []
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            raise ValueError("`output` must be a list of objects")
        return response

    @property
    def answer(self) -> str:
        """The text of the last assistant message; empty when the model said nothing."""
        for item in reversed(self.response.get("output") or ()):
            if item.get("type") == "message":
                return output_text({"output": [item]})
        return ""


class VerifyRequest(Answered):
    """Body of `/verify`. Subclass it to declare the row fields your verifier reads; the rest is dropped."""

    def scored(self, reward: float) -> VerifyResponse:
        """The answer to this request with its reward. See `VerifyResponse.of` for one with more fields."""
        return VerifyResponse.of(self, reward=reward)


class VerifyResponse(BaseModel):
    """Answer of `/verify`. Subclass it to declare fields of your own.

    A rollout whose score would say nothing about the model (a broken sandbox, a tool that was down) is not
    scored 0 but masked: `mask_sample=True`, with a `failure_kind` of the contract's vocabulary, or one of
    your own as `<server>:<kind>`, and a `failure_reason` for people.
    """

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None

    @classmethod
    def of(cls: type[V], request: VerifyRequest, *, reward: float, **fields: Any) -> V:
        """Echo the fields that request and answer have in common, and add the reward and `fields`."""
        echoed = {name: value for name, value in request.__dict__.items() if name in cls.model_fields}
        return cls(**{**echoed, "reward": reward, **fields})

    @field_validator("reward")
    @classmethod
    def _is_number(cls, reward: float) -> float:
        # JSON has no NaN: it would arrive as null, and be counted as something it is not.
        if not math.isfinite(reward):
            raise ValueError(f"reward must be a finite number, got {reward}")
        return reward


class MultiRewardResponse(VerifyResponse):
    """Answer of a server with several rewards: `reward` is the one that counts, its parts go along."""

    reward_components: dict[str, float]

    @field_validator("reward_components")
    @classmethod
    def _are_numbers(cls, components: dict[str, float]) -> dict[str, float]:
        bad = {name: value for name, value in components.items() if not math.isfinite(value)}
        if bad:
            raise ValueError(f"reward components must be finite numbers, got {bad}")
        return components
