"""`POST /aggregate_metrics` (CONTRACT 10.1) and one entry of `x_aggregate_metrics.json` (10.6)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class AggregateRequest(BaseModel):
    verify_responses: list[dict[str, Any]]


class AggregateResponse(BaseModel):
    """The empty object of this class is the answer for an empty list."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)
    perf_summary: dict[str, Any] | None = None
    repeat_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
