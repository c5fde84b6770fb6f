"""`gymctl eval`: start what is missing, make the rollouts, score them, and leave nothing running."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymctl.cli import selection as flags
from gymctl.cli.durations import seconds
from gymctl.cli.eval_flags import DEFAULT_CONCURRENCY, PROGRESS, EvalFlags, Limits
from gymctl.cli.from_registry import PlainHttp, opened
from gymctl.cli.output import Console
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config.checks.evaluation import Written
    from gymctl.config.model import Config

PER_CPU = 8
"""Rollouts at once per CPU beyond which a run measures this machine rather than the model."""

SETTINGS = {
    "output": ("output_jsonl_fpath", "--output"),
    "input": ("input_jsonl_fpath", "--input"),
    "split": ("split", "--split"),
    "limit": ("limit", "--limit"),
    "repeats": ("num_repeats", "--repeats"),
    "interleave_repeats": ("interleave_repeats", "--interleave-repeats"),
    "concurrency": ("num_samples_in_parallel", "--concurrency"),
    "strict": ("route_failures_to_sidecar", "--strict"),
    "agent": ("agent_name", "--agent"),
    "prompt_config": ("prompt_config", "--prompt-config"),
    "temperature": ("responses_create_params.temperature", "--temperature"),
    "top_p": ("responses_create_params.top_p", "--top-p"),
    "max_output_tokens": ("responses_create_params.max_output_tokens", "--max-output-tokens"),
}
"""Parameters below -> the key of the configuration that each stands for (CONTRACT 9.2), and its flag."""


def _setting(*names: str, help: str, metavar: str | None = None) -> Any:
    """A flag that stands for a key of the configuration, which its help names."""
    key = next(key for key, flag in SETTINGS.values() if flag == names[0].partition("/")[0])
    return typer.Option(*names, metavar=metavar, help=f"{help} [{key}]")


Output = Annotated[
    Path | None,
    _setting("--output", "-o", metavar="FILE.jsonl", help="Default: results/<benchmark>-<time>.jsonl."),
]
Input = Annotated[
    Path | None,
    _setting("--input", "-i", metavar="FILE.jsonl", help="Rows to run instead of the benchmark's own."),
]
Split = Annotated[
    str | None, _setting("--split", help="Datasets to run: benchmark (default), train or validation.")
]
Limit = Annotated[
    int | None,
    _setting("--limit", help="Run the first N rows; 0 is none, all by default. In a file 0 means all."),
]
Repeats = Annotated[
    int | None,
    _setting(
        *("--repeats", "-k", "--num-repeats"),
        help="Attempts at each task, 1 by default; also the k of pass@k.",
    ),
]
Interleave = Annotated[
    bool | None,
    _setting(
        "--interleave-repeats/--no-interleave-repeats", help="All first attempts, then all second ones."
    ),
]
Concurrency = Annotated[
    int | None,
    _setting(
        "--concurrency",
        help=f"Rollouts at once, {DEFAULT_CONCURRENCY} by default. Above 8 per CPU the machine is the limit.",
    ),
]
Agent = Annotated[str | None, _setting("--agent", "-a", help="Send every row to this agent.")]
PromptConfig = Annotated[
    str | None,
    _setting("--prompt-config", metavar="FILE.yaml", help="The prompt of rows that bring no input."),
]
Temperature = Annotated[float | None, _setting("--temperature", help="Overrides the rows' own.")]
TopP = Annotated[float | None, _setting("--top-p", help="Overrides the rows' own.")]
MaxOutputTokens = Annotated[int | None, _setting("--max-output-tokens", help="Overrides the rows' own.")]
TaskTimeout = Annotated[
    str | None, typer.Option(metavar="TIME", help="Limit for one rollout: seconds, 90s, 14m. Default: none.")
]
MaxTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start no rollout after this time: seconds, 90s, 14m.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Start no rollout once so many tokens, in and out, are used.")
]
MaxCost = Annotated[
    float | None, typer.Option(metavar="USD", help="Start no rollout once so much is spent; needs --prices.")
]
MaxRolloutTokens = Annotated[
    int | None, typer.Option(min=1, help="Mark rollouts that used more; they keep their score.")
]
MaxRolloutCost = Annotated[
    float | None, typer.Option(metavar="USD", help="Mark rollouts that cost more; they keep their score.")
]
PriceFile = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Prices of models. Default: ~/.config/gymctl/prices.yaml."),
]
Retry = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CLASS=N",
        help="Try failures of a class again N times, or none. Default: model=2 infrastructure=2.",
    ),
]
Strict = Annotated[
    bool | None, _setting("--strict/--no-strict", help="Stop everything at the first failed rollout.")
]
MinCoverage = Annotated[
    float, typer.Option(help="Share of rollouts that must have a score; below it: a range and exit code 6.")
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Replace the results at this output. Without it they are gone on with."),
]
FreshByDefault = Annotated[bool, typer.Option("--fresh-by-default", hidden=True)]
ResumeAnyway = Annotated[
    bool,
    typer.Option("--resume-anyway", help="Go on with results that were made with something else."),
]
NoServe = Annotated[bool, typer.Option("--no-serve", help="Use a running project; start and stop nothing.")]
Collate = Annotated[
    bool,
    typer.Option("--collate", help="Collate the datasets in the run's folder first, as `gym eval run` does."),
]
KeepUp = Annotated[bool, typer.Option("--keep-up", help="Leave the servers running afterwards.")]
Runtime = Annotated[str, typer.Option(help="auto, compose (containers) or process (no isolation).")]
Progress = Annotated[
    str,
    typer.Option(
        metavar="|".join(PROGRESS),
        help="How the run is shown on stderr; auto is rich on a terminal and plain lines elsewhere.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The result as one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result, warnings and errors.")]


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    output: Output = None,
    input: Input = None,
    split: Split = None,
    limit: Limit = None,
    repeats: Repeats = None,
    interleave_repeats: Interleave = None,
    concurrency: Concurrency = None,
    agent: Agent = None,
    prompt_config: PromptConfig = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_output_tokens: MaxOutputTokens = None,
    task_timeout: TaskTimeout = None,
    max_time: MaxTime = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    max_rollout_tokens: MaxRolloutTokens = None,
    max_rollout_cost: MaxRolloutCost = None,
    prices: PriceFile = None,
    retry: Retry = None,
    strict: Strict = None,
    min_coverage: MinCoverage = 0.95,
    fresh: Fresh = False,
    fresh_by_default: FreshByDefault = False,
    resume_anyway: ResumeAnyway = False,
    no_serve: NoServe = False,
    collate: Collate = False,
    keep_up: KeepUp = False,
    runtime: Runtime = "auto",
    locked: flags.Locked = False,
    lock: flags.LockFile = None,
    plain_http: PlainHttp = False,
    start_anyway: flags.StartAnyway = False,
    progress: Progress = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a benchmark: start its servers, make the rollouts, print the score with everything it lacks.

    With an output that is there already, only what is missing or failed is made; see --fresh.
    Ctrl+C once: no new rollouts, the running ones are waited for. Twice: stop now. Both keep what is done.
    A key in brackets sets the same in YAML or as ++key=value; a flag that is typed beats both.
    """
    typed = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in locals().items()
        if name in SETTINGS and value is not None
    }
    if strict is not None:
        typed["strict"] = not strict
    _check(typed, min_coverage, runtime)
    if progress not in PROGRESS:
        raise UsageError(
            f"`--progress` must be {', '.join(PROGRESS[:-1])} or {PROGRESS[-1]}, got `{progress}`"
        )
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
        given={SETTINGS[name][0]: (SETTINGS[name][1], value) for name, value in typed.items()},
        task_timeout=seconds(task_timeout, "--task-timeout"),
        limits=limits,
        min_coverage=min_coverage,
        is_serving=not no_serve,
        is_collating=collate,
        is_kept_up=keep_up,
        runtime=runtime,
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


def _check(typed: Mapping[str, Any], min_coverage: float, runtime: str) -> None:
    """What flags may say is known before any file is read."""
    if typed.get("limit", 0) < 0:
        raise UsageError(
            f"`--limit` must be 0 or more, got {typed['limit']}", hint="leave it out to run all rows"
        )
    for name in ("repeats", "concurrency"):
        if typed.get(name, 1) < 1:
            raise UsageError(f"`{SETTINGS[name][1]}` must be at least 1, got {typed[name]}")
    if not 0 <= min_coverage <= 1:
        raise UsageError(f"`--min-coverage` must be between 0 and 1, got {min_coverage}")
    if runtime not in ("auto", "compose", "process"):
        raise UsageError(f"`--runtime` must be auto, compose or process, got `{runtime}`")


def _too_many(written: Written) -> Iterator[str]:
    import os

    cpus = os.cpu_count() or 1
    limit = PER_CPU * cpus
    if (written.settings.concurrency or 0) > limit:
        place = written.where("num_samples_in_parallel")
        yield f"{cpus} CPUs: more than {limit} rollouts at once ({place}) measure this machine, not the model"
