"""`gymctl config check`: all that is wrong or doubtful about a configuration, before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.output import Console, inline, with_line
from gymctl.counts import counted

if TYPE_CHECKING:
    from gymctl.config.model import Config
    from gymctl.config.telling.check import Conflict, Report


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    json: common.JsonForText = False,
) -> None:
    """Print every error, warning and silent conflict of a configuration at once; exit 1 on errors.

    A conflict is a value that two files set differently, neither including the other: the later one wins.
    """
    from gymctl.config.telling.check import check

    report = check(chosen.selection(needs_model=False))
    console = Console()
    if json:
        console.json(_json(report))
    else:
        console.data("\n\n".join(_text(report)))
    if report.errors:
        raise typer.Exit(1)


def _json(report: Report) -> dict[str, Any]:
    return {
        "errors": [
            {
                "error": type(error).__name__,
                "what": error.what,
                "where": error.where,
                "hint": error.hint,
                "details": list(error.details),
            }
            for error in report.errors
        ],
        "warnings": list(report.warnings),
        "conflicts": [conflict.to_json() for conflict in report.conflicts],
    }


def _text(report: Report) -> Iterator[str]:
    yield from (f"error: {with_line(error)}" for error in report.errors)
    yield from (f"warning: {warning}" for warning in report.warnings)
    yield from map(_told, report.conflicts)
    yield _summary(report)


def _told(conflict: Conflict) -> str:
    *overruled, winner = conflict.writers
    lines = [f"conflict: `{conflict.key}` is set by several files, and only their order decides"]
    lines += [f"    {write.origin}  {inline(write.said)}" for write in overruled]
    lines.append(f"  > {winner.origin}  {inline(winner.said)}")
    return "\n".join(lines)


def _summary(report: Report) -> str:
    counts = ((report.errors, "error"), (report.warnings, "warning"), (report.conflicts, "conflict"))
    found = ", ".join(counted(len(items), noun) for items, noun in counts if items)
    if report.config is None:
        return found
    servers = f"{counted(len(report.config.servers), 'server')}; {files_in_order(report.config)}"
    return f"ok{f', {found}' if found else ''}: {servers}"


def files_in_order(config: Config) -> str:
    return f"files, the last wins: {', '.join(str(file) for file in config.files) or 'none'}"
