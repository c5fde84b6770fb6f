"""`gymctl health-check`: did model and agent do their work in each rollout, as far as its record tells?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli.output import Console
from gymctl.errors import PrerequisiteError, UsageError

if TYPE_CHECKING:
    from gymctl.paths import RunPaths
    from gymctl.rollouts.health import Report

ROLLOUTS_FILE = "rollouts.jsonl"


def command(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Rollouts file, name, @last, @-2; or the folder of a run.")
    ],
    rollouts_file: Annotated[
        str, typer.Option(metavar="NAME", help="The rollouts file, when RUN is a folder.")
    ] = ROLLOUTS_FILE,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one per CPU, 8 at most.")
    ] = None,
    ignore: Annotated[
        str, typer.Option("--ignore", "--ignore-checks", metavar="A,B", help="Checks to leave out.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Find rollouts whose model calls failed, answered nothing or were lost; a verdict for each.

    Writes quality_summary.json and rollout_verdicts.jsonl beside the run. The exit code does not depend on
    what is found. What is looked at is recorded with `observability_enabled`.
    """
    from gymctl.cli.runs import resolve
    from gymctl.rollouts.health import check
    from gymctl.rollouts.saved import SavedRun

    console = Console()
    ignored = checks_in(ignore, "--ignore")
    path = Path(run) / rollouts_file if Path(run).is_dir() else resolve(run)
    saved = SavedRun.open(path)
    try:
        report = check([saved], saved.paths, ignored, workers)
    except OSError as error:
        raise PrerequisiteError(
            f"the verdicts cannot be written: {error.strerror}", where=str(error.filename or path.parent)
        ) from error
    if json:
        console.json(report.document)
    else:
        _show(console, report, saved.paths)


def _show(console: Console, report: Report, paths: RunPaths) -> None:
    from gymctl.cli.health_text import health_text, issue_rows
    from gymctl.cli.table import file_lines

    run = report.document["run"]
    console.data(f" {'health':<11} {health_text(run)}")
    rows = issue_rows(report.document, report.examples)
    if rows:
        console.data("")
        console.table(("CHECK", "COUNT", "FIRST"), rows)
    console.say()
    for line in file_lines([("summary", paths.health), ("verdicts", paths.verdicts)]):
        console.say(line)
    first = next((name for names in report.examples.values() for name in names if ":" not in name), None)
    console.say()
    if first is not None:
        console.say(f"next: gymctl why {paths.rollouts} {first}")
    elif run["artifacts"]["records"] and not run["artifacts"]["captures"]:
        console.say("nothing was recorded: see `observability_enabled` in docs/observability.md")


def checks_in(text: str, flag: str) -> list[str]:
    """Names of checks, with commas between them. Raises UsageError for one that is none."""
    from gymctl.config.names import suggestion
    from gymctl.contract.health import CHECKS

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in CHECKS:
            raise UsageError(
                f"`{name}` is no health check",
                where=flag,
                hint=suggestion(name, CHECKS, noun="known"),
            )
    return names
