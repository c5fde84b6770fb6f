"""`gymctl eval`: start what is missing, make the rollouts, score them, and leave nothing running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.cli.eval_flags import EvalFlags
    from gymctl.config.model import Config

DEFAULT_CONCURRENCY = 8
"""Enough to keep a hosted model busy and few enough for a small one on this machine."""
PER_CPU = 8
"""Rollouts at once per CPU beyond which a run measures this machine rather than the model."""

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE.jsonl", help="Default: results/<benchmark>-<time>.jsonl"),
]
Input = Annotated[
    Path | None,
    typer.Option("--input", "-i", metavar="FILE.jsonl", help="Rows to run instead of the benchmark's own."),
]
Limit = Annotated[int | None, typer.Option(help="Run the first N rows. 0 is none; all by default.")]
Repeats = Annotated[
    int, typer.Option("--repeats", "-k", "--num-repeats", help="Attempts at each task; also the k of pass@k.")
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", help="Rollouts at once. Above 8 per CPU this machine is the limit.")
]
Agent = Annotated[str | None, typer.Option("--agent", "-a", help="Send every row to this agent.")]
Temperature = Annotated[float | None, typer.Option(help="Overrides the rows' own.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Overrides the rows' own.")]
MaxOutputTokens = Annotated[int | None, typer.Option(help="Overrides the rows' own.")]
TaskTimeout = Annotated[
    str | None, typer.Option(metavar="SECONDS", help="Limit for one rollout. Default: none.")
]
MinCoverage = Annotated[
    float, typer.Option(help="Share of rollouts that must have a score; below it: a range and exit code 6.")
]
NoServe = Annotated[bool, typer.Option("--no-serve", help="Use a running project; start and stop nothing.")]
KeepUp = Annotated[bool, typer.Option("--keep-up", help="Leave the servers running afterwards.")]
Runtime = Annotated[str, typer.Option(help="auto, compose (containers) or process (no isolation).")]
Json = Annotated[bool, typer.Option("--json", help="The result as one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result, warnings and errors.")]


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    output: Output = None,
    input: Input = None,
    limit: Limit = None,
    repeats: Repeats = 1,
    concurrency: Concurrency = DEFAULT_CONCURRENCY,
    agent: Agent = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_output_tokens: MaxOutputTokens = None,
    task_timeout: TaskTimeout = None,
    min_coverage: MinCoverage = 0.95,
    no_serve: NoServe = False,
    keep_up: KeepUp = False,
    runtime: Runtime = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a benchmark: start its servers, make the rollouts, print the score with everything it lacks.

    Ctrl+C once: no new rollouts, the running ones are waited for. Twice: stop now. Both keep what is done.
    """
    params = {"temperature": temperature, "top_p": top_p, "max_output_tokens": max_output_tokens}
    _check(limit, repeats, concurrency, min_coverage, runtime)
    from gymctl.cli.eval_flags import EvalFlags

    console = Console(is_quiet=quiet)
    asked = EvalFlags(
        selection=chosen.selection(),
        output=output,
        input=input,
        limit=limit,
        repeats=repeats,
        concurrency=concurrency,
        agent=agent,
        params={key: value for key, value in params.items() if value is not None},
        task_timeout=seconds(task_timeout, "--task-timeout"),
        min_coverage=min_coverage,
        is_serving=not no_serve,
        is_kept_up=keep_up,
        runtime=runtime,
        is_json=json,
    )
    _warn(asked, console)
    config = _loaded(asked, console)
    # Only now: HTTP client, runtimes and metrics are 0.2 CPU seconds that a wrong configuration does not pay.
    from gymctl.cli import interrupts
    from gymctl.cli.evaluation import Evaluation

    interrupts.run(Evaluation(asked, config, console).run, console.insist)


def _loaded(asked: EvalFlags, console: Console) -> Config | None:
    if not asked.reads_a_config:
        return None
    from gymctl.config.load import load

    config = load(asked.selection)
    from gymctl.cli.eval_input import unread_settings

    for warning in (*config.warnings, *unread_settings(config)):
        console.insist(f"warning: {warning}")
    return config


def seconds(text: str | None, flag: str) -> float | None:
    """A time limit: a number above 0; nothing, `none` or `inf` is no limit."""
    if text is None or text.strip().lower() in ("", "none", "null", "inf", ".inf"):
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value > 0:
        raise UsageError(
            f"`{flag}` must be a number of seconds above 0, got `{text}`", hint="none is no limit"
        )
    return None if value == float("inf") else value


def _check(limit: int | None, repeats: int, concurrency: int, min_coverage: float, runtime: str) -> None:
    if limit is not None and limit < 0:
        raise UsageError(f"`--limit` must be 0 or more, got {limit}", hint="leave it out to run all rows")
    if repeats < 1:
        raise UsageError(f"`--repeats` must be at least 1, got {repeats}")
    if concurrency < 1:
        raise UsageError(f"`--concurrency` must be at least 1, got {concurrency}")
    if not 0 <= min_coverage <= 1:
        raise UsageError(f"`--min-coverage` must be between 0 and 1, got {min_coverage}")
    if runtime not in ("auto", "compose", "process"):
        raise UsageError(f"`--runtime` must be auto, compose or process, got `{runtime}`")


def _warn(asked: EvalFlags, console: Console) -> None:
    import os

    cpus = os.cpu_count() or 1
    limit = PER_CPU * cpus
    if asked.concurrency > limit:
        console.insist(
            f"warning: {cpus} CPUs: --concurrency above {limit} will measure this machine, not the model"
        )
