"""The command line of `gymctl eval`, parsed. Light: what it names can be wrong, and that is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl.cli import selection as selecting

if TYPE_CHECKING:
    from gymctl.config.sources import Selection
    from gymctl.runtime.stack import RuntimeChoice


PROGRESS = ("auto", "rich", "plain", "text", "json", "none")
"""Ways to show how a run goes: see `gymctl/cli/progress.py`."""
DEFAULT_CONCURRENCY = 8
"""Enough to keep a hosted model busy and few enough for a small one on this machine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run, or one rollout, may use, and how often a failed one is tried again. None: no limit."""

    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    rollout_tokens: int | None = None
    rollout_cost: float | None = None
    prices: Path | None = None
    retry: tuple[str, ...] = ()

    @property
    def is_about_cost(self) -> bool:
        return self.cost is not None or self.rollout_cost is not None


@dataclass(frozen=True, slots=True)
class EvalFlags:
    """What the user asked for."""

    selection: Selection
    given: Mapping[str, tuple[str, Any]]
    """The settings whose flags were typed, by key: the flag and its value."""
    task_timeout: float | None
    limits: Limits
    min_coverage: float
    is_serving: bool
    is_collating: bool
    """The declared datasets are collated in the run's folder first, as `gym eval run` does."""
    is_kept_up: bool
    runtime: RuntimeChoice
    is_json: bool
    is_fresh: bool = False
    """Replace results that are there."""
    is_fresh_by_default: bool = False
    """The peer's manner: replace them unless `resume_from_cache` is set."""
    progress: str = "auto"
    locked_by: Path | None = None
    """The lock whose images are run."""
    benchmark: Mapping[str, str] = field(default_factory=dict)
    """`reference` and `digest` of a benchmark from a registry."""
    goes_on_anyway: bool = False
    """Go on with results that were made with something else."""

    @property
    def names_a_config(self) -> bool:
        return selecting.names_a_config(self.selection)

    @property
    def rollout_limits(self) -> dict[str, Any]:
        """What bounds one rollout, by flag: it may come out differently for it."""
        found = {
            "--task-timeout": self.task_timeout,
            "--max-rollout-tokens": self.limits.rollout_tokens,
            "--max-rollout-cost": self.limits.rollout_cost,
            "--retry": list(self.limits.retry),
        }
        return {flag: value for flag, value in found.items() if value}

    def override(self, key: str) -> str | None:
        return selecting.override(self.selection, key)

    @property
    def reads_a_config(self) -> bool:
        """--no-serve alone asks a running head instead."""
        return self.is_serving or self.names_a_config
