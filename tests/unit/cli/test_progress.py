"""The live display leaves nothing behind on the terminal, whatever is said while it is drawn."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections import Counter

import pytest

from gymctl.cli import progress
from gymctl.cli.output import Console
from gymctl.cli.progress import block, following, snapshot
from gymctl.cli.progress_text import TextBlocks
from gymctl.metrics.outcomes import Outcome
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
    made.asked, made.waits = {"0-0": "env", "1-0": "env"}, {"0-0": "policy_model"}
    [slowest] = [line for line in block(made, 10.0, 10.0) if "slowest" in line]
    assert slowest == " slowest   0-0 policy_model 10.0 s · 1-0 env 9.0 s · 2-0 8.0 s"


async def test_json_is_one_object_a_line_and_the_last_one_has_the_totals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "OBJECT_SECONDS", 600.0)
    err = io.StringIO()
    made = tally(5)
    async with following(made, Console(err=err, is_quiet=True), "json"):
        made.running, made.asked = {"0-4": asyncio.get_running_loop().time() - 60}, {"0-4": "tools"}
        await asyncio.sleep(0.01)
        made.count(0, "0-0", Outcome(reward=1.0), {"response": {"usage": {"input_tokens": 3}}})
        made.count(0, "0-1", Outcome(None, failure="model", reason="gone"), {})
    first, last = map(json.loads, err.getvalue().splitlines())
    assert first["slowest"][0]["server"] == "tools" and 59 < first["slowest"][0]["seconds"] < 90
    assert (first["finished"], first["waiting"], first["reward"], first["is_last"]) == (0, 4, None, False)
    assert (last["planned"], last["finished"], last["scored"], last["running"]) == (5, 2, 1, 1)
    assert (last["failed"]["model"], last["reward"], last["is_last"]) == (1, 1.0, True)
    assert last["tokens"] == {"input": 3, "output": 0}


async def test_none_and_quiet_say_nothing() -> None:
    for is_quiet, mode in ((False, "none"), (True, "plain"), (True, "rich")):
        err = io.StringIO()
        async with following(tally(), Console(err=err, is_quiet=is_quiet), mode):
            await asyncio.sleep(0)
        assert err.getvalue() == ""


@pytest.mark.parametrize("variable", [("CI", "1"), ("TERM", "dumb")])
async def test_b140_ci_and_dumb_terminals_get_plain_lines_and_few_of_them(
    variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B140: no carriage return and no colour; a line for a tenth of the rollouts, not for each."""
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.001)
    monkeypatch.setenv(*variable)
    terminal = Terminal()
    made = tally(200)
    async with following(made, Console(err=terminal)):
        for index in range(200):
            made.count(0, f"0-{index}", Outcome(reward=1.0), {})
            await asyncio.sleep(0.002)
    written = terminal.getvalue()
    assert "\r" not in written and "\x1b" not in written
    assert 1 <= len(written.splitlines()) <= 10


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[bold red]x[/] [/foo]", "[bold red]x[/] [/foo]"),
        ("a\x1b[2Jb\x1b[31mred\x1b[0m", "abred"),
        ("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc"),
        ("one\rtwo\x9b2J\x08\x00", "onetwo2J"),
        ("line\n\ttab é 日本", "line\n\ttab é 日本"),
    ],
)
def test_b139_text_of_rollouts_is_neither_markup_nor_a_command_to_the_terminal(text: str, shown: str) -> None:
    err = io.StringIO()
    Console(err=err).say(text)
    assert err.getvalue() == shown + "\n"


async def test_b139_a_reason_said_above_the_live_block_is_shown_literally(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    terminal = Terminal()
    console = Console(err=terminal)
    made = tally()
    made.running = {"\x1b[2J[/foo]": 0.0}
    async with following(made, console, "rich"):
        await asyncio.sleep(0)
        console.insist("[/foo] \x1b]0;t\x07\x1b[2J" + "x" * 2_000_000)
    assert "\x1b[2J" not in terminal.getvalue() and "\x1b]0" not in terminal.getvalue()
    assert "[/foo]" in terminal.getvalue()


def test_what_an_earlier_run_finished_makes_no_run_look_faster() -> None:
    made = tally(100)
    for index in range(60):
        made.count(0, f"0-{index}", Outcome(reward=1.0), {})
    assert "40.0 s left" in block(made, 10.0, 10.0, kept=50)[0]
    assert snapshot(made, 10.0, 10.0, 50)["rollouts_per_minute"] == 60.0


async def test_9_11_a_text_block_at_each_percent_and_a_line_for_each_dropped_rollout() -> None:
    """CONTRACT 9.11."""
    err, made, now = io.StringIO(), tally(1000), 0.0
    console = Console(err=err)
    made.count(0, "0-999", Outcome(reward=0.0), {})  # of an earlier session
    blocks = TextBlocks(made, console, lambda: now, Counter(env=999), lambda text: text.replace("key", "***"))
    async with following(made, console, "text", blocks):
        for index in range(998):
            now += 0.06
            record = {"_ng_environment_server": "env", "reward": 0.5, "turns": 3, "_hidden": 1, "text": "x"}
            made.count(0, f"0-{index}", Outcome(reward=0.5), record)
        assert "100%" not in err.getvalue()
        said = Outcome(None, "environment", "agent_run_error", "the key " + "y" * 500)
        made.count(0, "0-998", said, {"_ng_environment_server": "env"})
    told = err.getvalue().splitlines()
    heads = [text for text in told if text.startswith("Collecting rollouts: ")]
    shares = [re.search(r"\(([\d.]+)%\)", text) for text in heads]
    assert [found and found[1] for found in shares] == [*map(str, range(1, 100)), "99.5", "100"]
    assert heads[-1] == "Collecting rollouts: 1,000/1,000 (100%) · 59.9 s · 1,001.0 rollouts/min"
    assert told[1] == "  env: 990 left · reward 0.5 · turns 3"
    [dropped] = [text for text in told if text.startswith("dropped")]
    assert dropped == "dropped 0-998 (environment): the *** " + "y" * 192
    assert len(told) == 2 * 101 + 1


def test_a_text_block_comes_once_where_a_rollout_is_more_than_a_percent() -> None:
    err, made = io.StringIO(), tally(2)
    made.watch = TextBlocks(made, Console(err=err), lambda: 0.0, Counter(env=2))
    for index in range(2):
        made.count(0, f"0-{index}", Outcome(reward=1.0), {"_ng_environment_server": "env"})
    assert [text for text in err.getvalue().splitlines() if "(" in text] == [
        "Collecting rollouts: 1/2 (50%) · 0.0 s · 0.0 rollouts/min",
        "Collecting rollouts: 2/2 (100%) · 0.0 s · 0.0 rollouts/min",
    ]
