"""Seeded faults: what goes wrong with a request depends on its content and the seed, on nothing else."""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Rate = Annotated[float, Field(ge=0, le=1)]


class Faults(BaseModel):
    """Shares of all requests; each request suffers at most one of `statuses` and `disconnect_rate`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    latency_ms: float = Field(default=0.0, ge=0)
    jitter_ms: float = Field(default=0.0, ge=0)
    """Added to the latency: uniform from 0 to this."""
    statuses: dict[int, Rate] = Field(default_factory=dict)
    """HTTP status -> share of requests that are answered with it."""
    disconnect_rate: Rate = 0.0
    """Share of requests whose connection is dropped in the middle of the answer."""
    malformed_call_rate: Rate = 0.0
    """Share of turns with calls whose arguments are cut, so that they are no JSON."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> Faults:
        if sum(self.statuses.values()) + self.disconnect_rate > 1:
            raise ValueError("the rates of `statuses` and `disconnect_rate` add up to more than 1")
        return self


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one request."""

    digest: str
    delay_seconds: float
    status: int | None
    is_disconnected: bool
    is_call_malformed: bool


def fate(faults: Faults, seed: int, content: bytes) -> Fate:
    digest = blake2b(content, key=str(seed).encode(), digest_size=16).hexdigest()
    draw = random.Random(digest)
    delay = faults.latency_ms + draw.random() * faults.jitter_ms
    luck = draw.random()
    is_call_malformed = draw.random() < faults.malformed_call_rate
    status, is_disconnected = None, False
    for code, rate in sorted(faults.statuses.items()):
        if status is None and luck < rate:
            status = code
        luck -= rate
    if status is None:
        is_disconnected = 0 <= luck < faults.disconnect_rate
    return Fate(digest, delay / 1000, status, is_disconnected, is_call_malformed)
