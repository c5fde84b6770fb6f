"""What the passports of saved runs say beside their numbers: the model's name, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gymctl.cli.table import RunFacts
from gymctl.paths import RunPaths
from gymctl.rollouts import passport
from gymctl.rollouts.prices import ModelServer, Pricing, chosen

SCRIPTED = "scripted_model"


@dataclass(frozen=True, slots=True)
class MadeWith:
    """Of one run, or of all its shards together."""

    title: str
    model: str | None
    is_scripted: bool
    pricing: Pricing | None

    @classmethod
    def read(cls, paths: Sequence[Path], prices: Path | None) -> MadeWith:
        """Raises ConfigError for a price file that cannot be used."""
        read = [passport.read(RunPaths(path).passport) for path in paths]
        found = [one for one in read if one is not None]
        models: set[ModelServer] = {model for one in found for model in passport.model_servers(one)}
        names = {None if one is None else one.model for one in read}
        return cls(
            title=paths[0].stem if len(paths) == 1 else f"{len(paths)} shards",
            model=names.pop() if len(names) == 1 else None,
            is_scripted=any(model.implementation == SCRIPTED for model in models),
            pricing=Pricing.of_run(chosen(prices), models),
        )

    def facts(self, seconds: float | None, min_coverage: float) -> RunFacts:
        return RunFacts(
            title=self.title,
            model=self.model,
            seconds=seconds,
            min_coverage=min_coverage,
            is_scripted=self.is_scripted,
            prices_of=None if self.pricing is None else self.pricing.date,
        )
