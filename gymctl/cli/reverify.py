"""`gymctl reverify`: score saved rollouts again, into a new file, and say what changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.rollouts.reverified import Existing

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A rollouts file, the beginning of its name, @last or @-2.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE.jsonl", help="Default: RUN_reverified.jsonl beside the run."
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="FILE.jsonl", help="The run's rows, where they are not beside it."),
]
Only = Annotated[
    str | None,
    typer.Option("--only", metavar="judge-failed", help="Just what a judge left without a verdict."),
]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="NAME", help="The resources server that scores every rollout."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Also with a verifier that may need a session: into unsafe_….jsonl.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")]
Resume = Annotated[bool, typer.Option("--resume", help="Keep what an output has, do the rest.")]
Append = Annotated[
    bool, typer.Option("--append", help="With --only judge-failed: add the new scores to the run itself.")
]
Limit = Annotated[int | None, typer.Option("--limit", help="Score the first N of them.")]
Concurrency = Annotated[int, typer.Option("--concurrency", help="Verdicts at once.")]
DisableAggregation = Annotated[
    bool, typer.Option("--disable-aggregation", help="No aggregate metrics file for the output.")
]


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    run: Run,
    output: Output = None,
    inputs: Inputs = None,
    only: Only = None,
    server: Server = None,
    force: Force = False,
    overwrite: Overwrite = False,
    resume: Resume = False,
    append: Append = False,
    limit: Limit = None,
    concurrency: Concurrency = 16,
    disable_aggregation: DisableAggregation = False,
    no_serve: common.NoServe = False,
    runtime: common.Runtime = "auto",
    json: common.JsonResult = False,
    quiet: common.QuietResult = False,
) -> None:
    """Score saved rollouts again: the old answers, the verifier of today, nothing generated.

    Name the configuration of the run, as for `gymctl eval`; only its verifiers are started. The run itself is
    not changed: the new scores are a run of their own, and what changed is printed.
    """
    choice = common.runtime_choice(runtime)
    if only not in (None, "judge-failed"):
        raise UsageError(f"`{only}` is nothing to choose", where="--only", hint="--only judge-failed")
    for flag, number in (("--limit", limit), ("--concurrency", concurrency)):
        if number is not None and number < 1:
            raise UsageError(f"`{flag}` must be at least 1, got {number}")
    existing = _existing(overwrite=overwrite, resume=resume, append=append, is_judged=only is not None)
    if append and output is not None:
        raise UsageError("--append adds to the run itself", where="--output", hint="leave one of them out")

    from gymctl.cli import interrupts
    from gymctl.cli.reverification import Asked, Reverify

    console = Console(is_quiet=quiet)
    asked = Asked(
        run=run,
        output=output,
        inputs=inputs,
        is_only_judge_failed=only is not None,
        server=server,
        is_forced=force,
        existing=existing,
        limit=limit,
        concurrency=concurrency,
        is_aggregated=not disable_aggregation,
        is_serving=not no_serve,
        runtime=choice,
        is_json=json,
    )
    interrupts.run(Reverify(asked, chosen.selection(needs_model=False), console).run, console.insist)


def _existing(*, overwrite: bool, resume: bool, append: bool, is_judged: bool) -> Existing:
    from gymctl.rollouts.reverified import Existing

    given = [name for name, is_on in _modes(overwrite, resume, append) if is_on]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} do not go together")
    if append and not is_judged:
        raise UsageError(
            "--append would give rollouts a second score",
            where="--append",
            hint="it goes with --only judge-failed",
        )
    return Existing(given[0]) if given else Existing.REFUSE


def _modes(
    overwrite: bool, resume: bool, append: bool
) -> tuple[tuple[Literal["overwrite", "resume", "append"], bool], ...]:
    return ("overwrite", overwrite), ("resume", resume), ("append", append)
