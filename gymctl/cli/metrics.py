"""`gymctl metrics`: the numbers of a saved run, or of shards of one, to the digit as `eval` printed them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli.output import Console
from gymctl.errors import RunError, UsageError
from gymctl.paths import NOT_ROLLOUTS

if TYPE_CHECKING:
    from gymctl.rollouts.measured import Measured, Wanted

TASK = "task"


Run = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...",
        help="A rollouts file, the name of a run, @last; several files or a pattern: shards of one run.",
    ),
]
By = Annotated[
    str | None,
    typer.Option(metavar="FIELD", help="A line for each task, or for each value of a row field; agent."),
]
K = Annotated[list[int] | None, typer.Option("-k", help="The k of pass@k and pass^k; may be repeated.")]
Cluster = Annotated[
    str | None, typer.Option(metavar="FIELD", help="Tasks with one value of it are not independent.")
]
Answer = Annotated[
    str | None, typer.Option(metavar="FIELD", help="Field of a rollout with its answer: adds majority@k.")
]
Columns = Annotated[bool, typer.Option("--columns", help="The other numeric fields of the rollouts.")]
WriteProfile = Annotated[
    bool, typer.Option("--write-profile", help="Write the reward profile as three files beside the run.")
]
Inputs = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="For --write-profile: the rows, if not beside the run."),
]
AllowPartial = Annotated[
    bool, typer.Option("--allow-partial", help="For --write-profile: rows may lack a rollout.")
]
Aggregate = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Merge shards into FILE; the running servers compute its metrics."),
]
Head = Annotated[
    str | None, typer.Option(metavar="URL", help="For --aggregate: the head of the servers to ask.")
]
Merge = Annotated[bool, typer.Option("--merge/--no-merge", help="For --aggregate: write FILE, too.")]
Zero = Annotated[
    list[str] | None,
    typer.Option(metavar="LABEL", help="For --aggregate: a `_ng_failure_class` that counts as reward 0."),
]
MissingAsZero = Annotated[
    bool,
    typer.Option("--missing-as-zero", help="For --aggregate: rollouts that were not run count as 0."),
]
NoHealthCheck = Annotated[
    bool, typer.Option("--no-health-check", help="For --aggregate: no health check of the rollouts.")
]
HealthCheckWorkers = Annotated[
    int | None, typer.Option(min=1, help="For --aggregate: processes of the health check.")
]
HealthCheckIgnore = Annotated[
    str, typer.Option(metavar="A,B", help="For --aggregate: health checks to leave out.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]


def command(
    run: Run,
    by: By = None,
    k: K = None,
    cluster: Cluster = None,
    answer: Answer = None,
    columns: Columns = False,
    write_profile: WriteProfile = False,
    inputs: Inputs = None,
    allow_partial: AllowPartial = False,
    aggregate: Aggregate = None,
    head: Head = None,
    merge: Merge = True,
    zero: Zero = None,
    missing_as_zero: MissingAsZero = False,
    no_health_check: NoHealthCheck = False,
    health_check_workers: HealthCheckWorkers = None,
    health_check_ignore: HealthCheckIgnore = "",
    min_coverage: common.MinCoverage = 0.95,
    prices: common.Prices = None,
    json: Json = False,
) -> None:
    """Means, intervals, pass@k and coverage of saved runs; nothing is started and no file is changed.

    --by task is the reward profile: every task with its rewards.
    """
    if not 0 <= min_coverage <= 1:
        raise UsageError(f"`--min-coverage` must be between 0 and 1, got {min_coverage}")
    if any(one < 1 for one in k or ()):
        raise UsageError(f"`-k` must be at least 1, got {min(k or ())}")
    paths = shards(run, aggregate)
    if write_profile or aggregate is not None:
        from gymctl.cli import metrics_files as files
        from gymctl.cli.health_check import checks_in

        if write_profile:
            files.write_profiles(paths, inputs, is_partial=allow_partial, is_json=json)
        if aggregate is not None:
            labels = zero or []
            ignored = checks_in(health_check_ignore, "--health-check-ignore")
            files.aggregate_shards(paths, aggregate, labels, missing=missing_as_zero, merges=merge, head=head)
            if not no_health_check:
                files.check_shards(paths, aggregate, ignored, health_check_workers)
        return
    from gymctl.rollouts.measured import Wanted

    wanted = Wanted(
        ks=tuple(sorted({1, *k})) if k else (),
        cluster=cluster,
        by=None if by == TASK else by,
        answer=answer,
        columns=columns,
        tasks=by == TASK,
    )
    show(paths, wanted, min_coverage, prices=prices, is_json=json)


def shards(arguments: Sequence[str], output: Path | None = None) -> list[Path]:
    """The rollouts files that the arguments mean; patterns are sorted and leave out what is none, or ours."""
    import glob

    from gymctl.cli.runs import resolve

    found: dict[Path, None] = {}
    for argument in arguments:
        if not glob.has_magic(argument):
            found[resolve(argument)] = None
            continue
        matches = [Path(name) for name in sorted(glob.glob(argument, recursive=True))]  # noqa: PTH207 - absolute, too
        kept = [path for path in matches if path.is_file() and not path.stem.endswith(NOT_ROLLOUTS)]
        if output is not None:
            kept = [path for path in kept if path.resolve() != output.resolve()]
        if not kept:
            raise UsageError(
                "the pattern matches no rollouts file",
                where=argument,
                hint="*_failures.jsonl and *_materialized_inputs.jsonl are left out",
            )
        found.update(dict.fromkeys(kept))
    return list({path.resolve(): path for path in found}.values())


def show(
    paths: Sequence[Path],
    wanted: Wanted,
    min_coverage: float,
    *,
    prices: Path | None = None,
    is_json: bool = False,
) -> None:
    """Print everything; RunError when the coverage is under the floor."""
    from gymctl.cli import metrics_tables as tables
    from gymctl.cli.saved_facts import MadeWith
    from gymctl.cli.table import reason_lines, result_lines, under_floor
    from gymctl.rollouts.measured import measure
    from gymctl.rollouts.saved import SavedRun

    console = Console()
    made_with = MadeWith.read(paths, prices)
    measured = measure([SavedRun.open(path) for path in paths], replace(wanted, price=made_with.pricing))
    facts = made_with.facts(measured.seconds, min_coverage)
    if is_json:
        console.json(tables.as_json(measured, facts, wanted))
    else:
        console.data("\n".join([*result_lines(measured.tally, facts), *tables.vote_lines(measured, wanted)]))
        for header, rows in tables.tables(measured, facts, wanted):
            console.data("")
            console.table(header, rows)
    for notice in measured.notices:
        console.insist(f"note: {notice}")
    if not is_json:
        console.say()
        console.say(_next(paths, measured, wanted))
    coverage = measured.tally.headline().coverage
    if coverage < min_coverage:
        raise RunError(
            f"coverage {coverage:.1%} is under the floor of {min_coverage:.0%}",
            where=str(paths[0]),
            details=reason_lines(measured.tally),
            hint=under_floor(measured.tally, paths[0]),
        )


def _next(paths: Sequence[Path], measured: Measured, wanted: Wanted) -> str:
    """One thing worth doing now."""
    names = shlex.join(map(str, paths[:3])) + (" …" if len(paths) > 3 else "")
    if len(paths) == 1 and measured.tally.failed:
        return f"next: gymctl why {names}"
    if not wanted.tasks:
        return f"next: gymctl metrics {names} --by task"
    return f"next: gymctl metrics {names} --columns"
