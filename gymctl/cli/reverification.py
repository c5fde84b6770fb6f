"""The steps of `gymctl reverify`: read the run, start its verifiers, score, show what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gymctl.cli import surroundings
from gymctl.cli.identity import command, of_rescored
from gymctl.cli.interrupts import Interrupts
from gymctl.cli.output import Console
from gymctl.cli.runs import register, resolve
from gymctl.cli.selection import names_a_config, override
from gymctl.cli.serving import Served, Serving
from gymctl.config.model import Config
from gymctl.config.sources import Selection
from gymctl.contract.part import Pool
from gymctl.contract.servers import ServerTable
from gymctl.counts import counted
from gymctl.errors import ConfigError, GymctlError, Interrupted, RunError, UsageError
from gymctl.metrics.headline import TaskScore, headline
from gymctl.paths import RunPaths
from gymctl.rollouts import rescored, seal
from gymctl.rollouts.finish import aggregate_metrics, document
from gymctl.rollouts.lines import replace as replace_file
from gymctl.rollouts.metric_input import Counting, MetricInput
from gymctl.rollouts.reverified import Existing, ReverifiedFiles, output_of
from gymctl.rollouts.reverify import Change, Reverification, environment_of
from gymctl.rollouts.route import depends_on
from gymctl.rollouts.saved import SavedRun
from gymctl.runtime.stack import RuntimeChoice
from gymctl.transport import Transport

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    run: str
    output: Path | None
    inputs: Path | None
    is_only_judge_failed: bool
    server: str | None
    is_forced: bool
    existing: Existing
    limit: int | None
    concurrency: int
    is_aggregated: bool
    is_serving: bool
    runtime: RuntimeChoice
    is_json: bool


class Reverify:
    """One `gymctl reverify`."""

    def __init__(self, asked: Asked, selection: Selection, console: Console) -> None:
        self._asked = asked
        self._selection = selection
        self._secrets: frozenset[str] = frozenset()
        self._console = console

    async def run(self, interrupts: Interrupts) -> None:
        """Raises the error that the exit code stands for, after the result was shown."""
        asked = self._asked
        saved = SavedRun.open(resolve(asked.run))
        if asked.inputs is not None:
            saved.inputs = asked.inputs
        config = self._config()
        self._secrets = frozenset() if config is None else config.secrets
        async with Transport(Pool(limit=0, limit_per_host=0)) as transport:
            serving = Serving(
                config,
                partial(override, self._selection),
                self._console,
                runtime=asked.runtime,
                concurrency=asked.concurrency,
            )
            found = None if asked.is_serving else await serving.running(transport)
            table = found.table if found is not None else _planned(config)
            again = self._reverification(saved, table)
            needed = set(again.verifiers().values())
            if not needed:
                raise RunError(
                    "no rollout of this run has an answer to score", where=str(saved.paths.rollouts)
                )
            verifiers = None if config is None else _only(config, table, needed)
            if verifiers is not None and found is None:
                serving = replace(serving, config=verifiers)
            async with serving.served(found, interrupts) as served:
                again.served = served.table
                await self._score(again, transport, interrupts, served, verifiers)

    async def _score(
        self,
        again: Reverification,
        transport: Transport,
        interrupts: Interrupts,
        served: Served,
        verifiers: Config | None,
    ) -> None:
        asked, saved = self._asked, again.saved
        is_safe = await again.check_modes(transport, is_forced=asked.is_forced)
        output = output_of(saved, asked.output, is_safe=is_safe)
        if asked.existing is Existing.APPEND:
            output = saved.paths.rollouts
        before = _mean(saved)
        with ReverifiedFiles(saved, output, asked.existing) as files:
            register(output)
            if asked.existing is not Existing.APPEND:
                await self._tell_what_scores(saved, files.paths, served, verifiers)
            files.copy(asked.is_only_judge_failed)
            with interrupts.draining() as drain:
                count = await again.run(
                    transport,
                    files,
                    concurrency=asked.concurrency,
                    done=files.done,
                    limit=asked.limit,
                    drain=drain,
                )
        problem = None
        if asked.is_aggregated and interrupts.received is None:
            problem = await _aggregate(again, transport, output)
        if asked.existing is Existing.APPEND:
            await asyncio.to_thread(seal.renew, saved.paths, command(self._secrets))
        else:
            await asyncio.to_thread(rescored.close, saved, RunPaths(output))
        self._show(again, count, before, output)
        if interrupts.received is not None:
            raise Interrupted(
                "interrupted",
                signal_number=interrupts.received,
                hint="what is scored is kept; the same command with --resume does the rest",
            )
        if problem is not None:
            raise problem
        if again.changes.failed:
            raise RunError(
                f"{counted(again.changes.failed.total(), 'verdict')} did not come",
                where=str(RunPaths(output).failures),
                hint="--resume asks for them again",
            )

    async def _tell_what_scores(
        self, saved: SavedRun, paths: RunPaths, served: Served, verifiers: Config | None
    ) -> None:
        """The passport of the new scores, and the images and the configuration beside it."""
        seen = await surroundings.look(served.stack, verifiers)
        made_with = await asyncio.to_thread(of_rescored, verifiers, served.table, saved)
        for other in await asyncio.to_thread(rescored.begin, saved, paths, made_with, seen):
            self._console.insist(f"note: another image than when the scoring was begun: {other}")

    def _config(self) -> Config | None:
        from gymctl.config.load import load

        if not self._asked.is_serving and not names_a_config(self._selection):
            return None
        if not names_a_config(self._selection):
            raise UsageError(
                "which servers score the rollouts is not said",
                hint="name the run's configuration, as for gymctl eval; or --no-serve for a running project",
            )
        config = load(self._selection)
        for warning in config.warnings:
            self._console.insist(f"warning: {warning}")
        return config

    def _reverification(self, saved: SavedRun, table: ServerTable) -> Reverification:
        server = self._asked.server
        if server is not None and (server not in table or table[server].kind != "resources_servers"):
            names = ", ".join(entry.name for entry in table.of_kind("resources_servers"))
            raise ConfigError(
                f"`{server}` is no resources server here",
                where="--server",
                hint=f"there are: {names or 'none'}",
            )
        only = self._asked.is_only_judge_failed
        return Reverification(saved, table, only_judge_failed=only, verifier=server)

    def _show(self, again: Reverification, count: int, before: float | None, output: Path) -> None:
        after = _mean(SavedRun.open(output))
        changes, old = again.changes, again.saved.paths.rollouts
        if self._asked.is_json:
            self._console.json(_as_json(again, count, (before, after), output))
        else:
            self._console.data("\n".join(_lines(again, count, (before, after))))
        self._console.say(f" output      {output}")
        self._console.say()
        if changes.gained or changes.lost:
            self._console.say(f"next: gymctl compare {old} {output}")
        else:
            self._console.say(f"next: gymctl metrics {output}")


def _lines(again: Reverification, count: int, means: tuple[float | None, float | None]) -> Iterator[str]:
    changes = again.changes
    yield f" verified    {count:,}     the same reward {changes.same:,}"
    for label, changed in (("higher", changes.gained), ("lower", changes.lost)):
        if changed:
            yield f" {label:<11} {len(changed):,}     {_named(changed)}"
    if changes.rescued:
        yield f" first score {changes.rescued:,}     rollouts that had none"
    if again.without_response:
        yield f" left out    {again.without_response:,}     without an answer to score"
    for reason, times in changes.failed.most_common(_SHOWN):
        yield f" failed      {times:,} × {reason}"
    yield f" reward      {_number(means[0])} → {_number(means[1])}     mean of task means"


def _named(changed: list[Change]) -> str:
    ordered = sorted(changed, key=lambda one: -abs(one.after - one.before))
    names = [f"{one.name} {one.before:g} → {one.after:g}" for one in ordered[:_SHOWN]]
    return " · ".join(names) + (f" · and {len(changed) - _SHOWN:,} more" if len(changed) > _SHOWN else "")


def _as_json(
    again: Reverification, count: int, means: tuple[float | None, float | None], output: Path
) -> dict[str, Any]:
    changes = again.changes

    def listed(changed: list[Change]) -> list[dict[str, Any]]:
        return [{"rollout": one.name, "before": one.before, "after": one.after} for one in changed]

    return {
        "run": str(again.saved.paths.rollouts),
        "output": str(output),
        "verified": count,
        "same": changes.same,
        "higher": listed(changes.gained),
        "lower": listed(changes.lost),
        "first_score": changes.rescued,
        "without_answer": again.without_response,
        "failed": dict(changes.failed),
        "reward": {"before": means[0], "after": means[1]},
    }


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _mean(run: SavedRun) -> float | None:
    tasks: dict[int, TaskScore] = {}
    for rollout in run.rollouts():
        if rollout.outcome.reward is not None:
            tasks.setdefault(rollout.key[0], TaskScore()).add(rollout.outcome.reward)
    return headline(list(tasks.values())).mean


async def _aggregate(again: Reverification, transport: Transport, output: Path) -> GymctlError | None:
    """The file of 10.6, from the verifiers themselves: the environment servers are not up."""
    run = SavedRun.open(output)
    try:
        with MetricInput([run], Counting(), environment_of) as found:
            await asyncio.to_thread(found.fill)
            asked = again.verifiers(run)
            entries = await aggregate_metrics(transport, again.served, found, {}, asked)
        replace_file(RunPaths(output).aggregate, document(entries))
    except GymctlError as error:
        return error
    return None


def _planned(config: Config | None) -> ServerTable:
    assert config is not None
    return ServerTable.from_document(config.document)


def _only(config: Config, table: ServerTable, verifiers: set[str]) -> Config:
    """The project of the verifiers and of what they call: one of its own, beside that of the evaluation."""
    needed = frozenset().union(*(depends_on(table, name) for name in verifiers))
    return config.only(needed, f"{config.project[:56]}-verify")
