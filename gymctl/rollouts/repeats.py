"""How often a row is run, and the seed that tells its rollouts apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymctl.errors import ConfigError, UsageError
from gymctl.rollouts.route import DEFAULT


@dataclass(frozen=True, slots=True)
class Repeats:
    """`num_repeats`: by the agent that runs a row, else by the row's own name, else the default."""

    default: int | None = 1
    by_name: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for count in (self.default, *self.by_name.values()):
            if count is not None and count < 1:
                raise UsageError(f"`num_repeats` must be at least 1, got {count}")

    @classmethod
    def of(cls, asked: int | Mapping[str, int]) -> Repeats:
        if isinstance(asked, int):
            return cls(asked)
        by_name = {name: count for name, count in asked.items() if name != DEFAULT}
        return cls(asked.get(DEFAULT), by_name)

    def count(self, *names: str | None) -> int | None:
        """The entry of the first name that has one; None when there is none."""
        entries = (self.by_name[name] for name in names if name is not None and name in self.by_name)
        return next(entries, self.default)


def seeded(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """`responses_create_params` with a seed in `metadata.extra_body`, which is JSON text (CONTRACT 9.2)."""
    metadata = params.get("metadata") or {}
    try:
        text = metadata.get("extra_body") or "{}"
        extra = json.loads(text)
        return {**params, "metadata": {**metadata, "extra_body": json.dumps({**extra, "seed": seed})}}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            "`num_repeats_add_seed` needs `metadata.extra_body` to be the text of a JSON object"
        ) from None
