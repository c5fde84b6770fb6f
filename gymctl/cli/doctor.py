"""`gymctl doctor`: is this machine fit, and what to do where it is not."""

from __future__ import annotations

import typer

from gymctl.cli import common_flags as common
from gymctl.cli.output import Console
from gymctl.counts import counted
from gymctl.errors import PrerequisiteError


def command(json: common.JsonForText = False) -> None:
    """Check engine, disk, ports, limits and leftovers. Exit code 3 when something has to be done first."""
    from dataclasses import asdict

    from gymctl.runtime.checkup import findings

    console = Console()
    found = findings()
    if json:
        console.json([asdict(finding) for finding in found])
    for finding in () if json else found:
        console.data(f" {finding.mark:<5} {finding.text}")
        if finding.hint and finding.mark != "ok":
            console.data(f"       {finding.hint}")
    failed = sum(finding.mark == "fail" for finding in found)
    warned = sum(finding.mark == "warn" for finding in found)
    counts = [counted(failed, "problem"), counted(warned, "warning")]
    console.say(", ".join(counts) if failed or warned else "all is well")
    if failed:
        raise typer.Exit(PrerequisiteError.exit_code)
