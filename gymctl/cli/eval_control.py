"""What bounds an evaluation: caps, retries and prices, from flags and settings to the collector's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymctl.cli.eval_flags import EvalFlags, Limits
from gymctl.cli.recorded import captures
from gymctl.config.model import Config
from gymctl.contract.evaluation import EvaluationSettings
from gymctl.contract.servers import ServerTable
from gymctl.counts import counted
from gymctl.errors import BudgetError, UsageError
from gymctl.rollouts import retries
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.limits import Caps
from gymctl.rollouts.prices import EXAMPLE, ModelServer, Pricing, chosen, default_path
from gymctl.rollouts.run import Run
from gymctl.rollouts.settings import counting


def options(
    asked: EvalFlags, config: Config | None, settings: EvaluationSettings, concurrency: int
) -> CollectOptions:
    """How the rollouts are made."""
    limits = asked.limits
    caps = Caps(
        seconds=limits.seconds,
        tokens=limits.tokens,
        cost=limits.cost,
        rollout_tokens=limits.rollout_tokens,
        rollout_cost=limits.rollout_cost,
        dispatch_seconds=settings.dispatch_budget_s,
        drain_margin=settings.drain_margin_s,
    )
    return CollectOptions(
        concurrency,
        asked.task_timeout,
        declared=counting(settings).declared,
        captures=captures(config),
        retries=retries.Retries(retries.parse(limits.retry)),
        caps=caps,
        is_strict=not settings.route_failures_to_sidecar,
    )


def pricing(limits: Limits, config: Config | None, table: ServerTable) -> tuple[Pricing | None, list[str]]:
    """The prices of this run, None when there is nothing to be said about cost; and what users should know.

    Raises ConfigError for a price file that cannot be used, UsageError when a cap on cost could not hold.
    """
    path = limits.prices or default_path()
    prices = chosen(limits.prices)
    servers = _model_servers(config)
    asked = {name for entry in table.of_kind("responses_api_agents") for name in entry.references.values()}
    by_agents = {name: model for name, model in servers.items() if name in asked}
    names = sorted({model.name for model in by_agents.values()})
    made = Pricing.of_run(prices, list(by_agents.values()))
    if limits.is_about_cost:
        _refuse_unknown(made or Pricing(prices), names, path)
        others = sorted(servers.keys() - by_agents.keys())
        if others:
            listed = ", ".join(f"`{name}`" for name in others)
            return made, [f"what {listed} costs is in no record, so caps on cost do not count it"]
    return made, []


def _refuse_unknown(pricing: Pricing, models: Sequence[str], path: Path) -> None:
    if not models:
        raise UsageError(
            "a cap on cost needs to know the model, and only a running head was named",
            where="--max-cost",
            hint="name the configuration too: gymctl eval BENCHMARK --no-serve --max-cost …",
        )
    unknown = [name for name in models if pricing.of(name) is None]
    if unknown:
        listed = ", ".join(f"`{name}`" for name in unknown)
        raise UsageError(
            f"a cap on cost cannot hold: the price of {listed} is not known",
            where="--max-cost",
            hint=f"add it to {path}, in USD per million tokens: {EXAMPLE.replace('NAME', unknown[0])}",
        )


def _model_servers(config: Config | None) -> dict[str, ModelServer]:
    """By server id."""
    found: dict[str, ModelServer] = {}
    for name, block in (config.document if config is not None else {}).items():
        kinds: Any = block.get("responses_api_models") if isinstance(block, Mapping) else None
        if isinstance(kinds, Mapping):
            for implementation, fields in kinds.items():
                values = fields if isinstance(fields, Mapping) else {}
                found[name] = ModelServer.of(str(implementation), values)
    return found


def budget_error(run: Run) -> BudgetError:
    """The run stopped at a cap, and can go on."""
    missing, planned = run.still_owed, run.tally.planned
    return BudgetError(
        f"the run stopped at {run.cap}: {missing:,} of {counted(planned, 'rollout')} still to be made",
        where=str(run.paths.rollouts),
        hint="the same command without the cap, or with a higher one, makes the rest",
    )
