"""The live display leaves nothing behind on the terminal, whatever is said while it is drawn."""

from __future__ import annotations

import asyncio
import io
import re

import pytest

from gymctl.cli.output import Console
from gymctl.cli.progress import block, following
from gymctl.metrics.tally import Tally


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """The lines that a person sees at the end."""
        lines, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[\??\d*[A-Za-z]|[^\x1b]", self.getvalue()):
            if part == "\n":
                row, column = row + 1, 0
            elif part == "\r":
                column = 0
            elif part.endswith("A") and part.startswith("\x1b"):
                row -= int(part[2:-1] or 1)
            elif part.endswith("K") and part.startswith("\x1b"):
                lines[row] = ""
            elif not part.startswith("\x1b"):
                lines[row] = lines[row].ljust(column)[:column] + part + lines[row][column + 1 :]
                column += 1
            lines += [""] * (row + 1 - len(lines))
        return [line.rstrip() for line in lines if line.strip()]


def tally(rollouts: int = 4) -> Tally:
    made = Tally()
    made.plan(0, rollouts)
    return made


async def test_what_is_said_meanwhile_stands_above_and_the_display_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    terminal = Terminal()
    console = Console(err=terminal)
    async with following(tally(), console):
        await asyncio.sleep(0)
        console.insist("warning: one [bold]thing[/bold]")
        console.insist("draining: " + "x" * 100)
    assert "0 of 4" in terminal.getvalue()
    console.insist("afterwards")
    assert terminal.screen() == ["warning: one [bold]thing[/bold]", "draining: " + "x" * 100, "afterwards"]


async def test_a_pipe_sees_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    err = io.StringIO()
    console = Console(err=err)
    async with following(tally(), console):
        await asyncio.sleep(0)
        console.insist("warning")
    assert err.getvalue() == "warning\n"


def test_the_slowest_are_those_that_started_first() -> None:
    made = tally()
    made.running = {f"{number}-0": float(number) for number in range(5)}
    [slowest] = [line for line in block(made, 10.0, 10.0) if "slowest" in line]
    assert slowest == " slowest   0-0 10.0 s · 1-0 9.0 s · 2-0 8.0 s"
