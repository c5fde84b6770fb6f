"""`gymctl eval`: start what is missing, make the rollouts, score them, and leave nothing running."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl.cli import common_flags as common
from gymctl.cli import eval_options as options
from gymctl.cli import selection as flags
from gymctl.cli.durations import seconds
from gymctl.cli.eval_flags import PROGRESS, EvalFlags, Limits
from gymctl.cli.from_registry import PlainHttp, opened
from gymctl.cli.output import Console
from gymctl.counts import counted
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config.checks.evaluation import Written
    from gymctl.config.model import Config

PER_CPU = 8
"""Rollouts at once per CPU beyond which a run measures this machine rather than the model."""


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    output: options.Output = None,
    input: options.Input = None,
    split: options.Split = None,
    limit: options.Limit = None,
    repeats: options.Repeats = None,
    interleave_repeats: options.Interleave = None,
    concurrency: options.Concurrency = None,
    agent: options.Agent = None,
    prompt_config: options.PromptConfig = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    max_output_tokens: options.MaxOutputTokens = None,
    task_timeout: options.TaskTimeout = None,
    max_time: options.MaxTime = None,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    max_rollout_tokens: options.MaxRolloutTokens = None,
    max_rollout_cost: options.MaxRolloutCost = None,
    prices: common.Prices = None,
    retry: options.Retry = None,
    strict: options.Strict = None,
    min_coverage: common.MinCoverage = 0.95,
    fresh: options.Fresh = False,
    fresh_by_default: options.FreshByDefault = False,
    resume_anyway: options.ResumeAnyway = False,
    no_serve: common.NoServe = False,
    collate: options.Collate = False,
    keep_up: options.KeepUp = False,
    runtime: common.Runtime = "auto",
    locked: flags.Locked = False,
    lock: flags.LockFile = None,
    plain_http: PlainHttp = False,
    start_anyway: flags.StartAnyway = False,
    progress: options.Progress = "auto",
    json: common.JsonResult = False,
    quiet: common.QuietResult = False,
) -> None:
    """Run a benchmark: start its servers, make the rollouts, print the score with everything it lacks.

    With an output that is there already, only what is missing or failed is made; see --fresh.
    Ctrl+C once: no new rollouts, the running ones are waited for. Twice: stop now. Both keep what is done.
    A key in brackets sets the same in YAML or as ++key=value; a flag that is typed beats both.
    """
    typed = _typed(locals())
    _check(typed, min_coverage, progress)
    choice = common.runtime_choice(runtime)
    if fresh and resume_anyway:
        raise UsageError("--fresh replaces results and --resume-anyway goes on with them", where="--fresh")
    limits = Limits(
        seconds=seconds(max_time, "--max-time"),
        tokens=max_tokens,
        cost=_dollars(max_cost, "--max-cost"),
        rollout_tokens=max_rollout_tokens,
        rollout_cost=_dollars(max_rollout_cost, "--max-rollout-cost"),
        prices=prices,
        retry=_retries(retry),
    )
    asked_lock = flags.locked_by(locked, lock)
    if no_serve and asked_lock is not None:
        raise UsageError("--no-serve starts nothing that --locked could choose", where="--locked")
    if no_serve and chosen.given.get("agent_type") is not None:
        raise _settled()
    console = Console(is_quiet=quiet or progress == "json")
    found = opened(chosen, console, plain_http=plain_http)
    asked = EvalFlags(
        selection=found.chosen.selection(start_anyway=start_anyway),
        given={
            options.SETTINGS[name][0]: (options.SETTINGS[name][1], value) for name, value in typed.items()
        },
        task_timeout=seconds(task_timeout, "--task-timeout"),
        limits=limits,
        min_coverage=min_coverage,
        is_serving=not no_serve,
        is_collating=collate,
        is_kept_up=keep_up,
        runtime=choice,
        locked_by=found.locked_by(asked_lock),
        benchmark=found.benchmark or {},
        is_json=json,
        progress=progress,
        is_fresh=fresh,
        is_fresh_by_default=fresh_by_default,
        goes_on_anyway=resume_anyway,
    )
    config, written = _loaded(asked, console)
    # Only now: HTTP client, runtimes and metrics are 0.2 CPU seconds that a wrong configuration does not pay.
    from gymctl.cli import interrupts
    from gymctl.cli.evaluation import Evaluation

    interrupts.run(Evaluation(asked, written, config, console).run, console.insist)


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings whose flags were typed, by parameter, as the configuration has them."""
    typed = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if name in options.SETTINGS and value is not None
    }
    if "strict" in typed:
        typed["strict"] = not typed["strict"]
    return typed


def _settled() -> UsageError:
    return UsageError(
        "the agent of a running project is settled, so --agent-type and --no-serve do not go together",
        where="--agent-type",
        hint="start it with that agent: gymctl up … --agent-type NAME; --agent names one that runs",
    )


def _loaded(asked: EvalFlags, console: Console) -> tuple[Config | None, Written]:
    """The configuration, None when only a running head is asked, and the settings of the evaluation."""
    from gymctl.config.checks import evaluation
    from gymctl.config.load import load
    from gymctl.config.sources import bare

    flags = [evaluation.Flag(flag, key, value) for key, (flag, value) in asked.given.items()]
    config = load(asked.selection) if asked.reads_a_config else None
    said = bare(asked.selection) if config is None else config
    written = evaluation.read(said.document, said.origins, flags)
    if asked.is_collating:
        from gymctl.cli.collation import check_run

        check_run(written, is_serving=asked.is_serving)
    for warning in (*said.warnings, *written.warnings, *_too_many(written)):
        console.insist(f"warning: {warning}")
    return config, written


def _retries(texts: list[str] | None) -> tuple[str, ...]:
    """Checked at once, as they were typed."""
    if not texts:
        return ()
    from gymctl.rollouts.retries import parse

    parse(texts)
    return tuple(texts)


def _dollars(value: float | None, flag: str) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise UsageError(f"`{flag}` must be an amount above 0, got {value:g}", where=flag)
    return value


def _check(typed: Mapping[str, Any], min_coverage: float, progress: str) -> None:
    """What flags may say is known before any file is read."""
    if typed.get("limit", 0) < 0:
        raise UsageError(
            f"`--limit` must be 0 or more, got {typed['limit']}", hint="leave it out to run all rows"
        )
    for name in ("repeats", "concurrency"):
        if typed.get(name, 1) < 1:
            raise UsageError(f"`{options.SETTINGS[name][1]}` must be at least 1, got {typed[name]}")
    if not 0 <= min_coverage <= 1:
        raise UsageError(f"`--min-coverage` must be between 0 and 1, got {min_coverage}")
    if progress not in PROGRESS:
        raise UsageError(
            f"`--progress` must be {', '.join(PROGRESS[:-1])} or {PROGRESS[-1]}, got `{progress}`"
        )


def _too_many(written: Written) -> Iterator[str]:
    import os

    cpus = os.cpu_count() or 1
    limit = PER_CPU * cpus
    if (written.settings.concurrency or 0) > limit:
        place = written.where("num_samples_in_parallel")
        found = counted(cpus, "CPU")
        yield f"{found}: more than {limit} rollouts at once ({place}) measure this machine, not the model"
