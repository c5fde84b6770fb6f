"""Data goes to stdout, talk to stderr, and a table lines up."""

from __future__ import annotations

import io

import pytest

from gymctl.cli.output import Console, ReaderGone, reporter, table_lines
from gymctl.errors import ConfigError


def test_data_and_talk_are_kept_apart() -> None:
    out, err = io.StringIO(), io.StringIO()
    console = Console(out=out, err=err)
    console.data("7")
    console.say("seven")
    assert (out.getvalue(), err.getvalue()) == ("7\n", "seven\n")


def test_quiet_silences_talk_but_not_warnings() -> None:
    out, err = io.StringIO(), io.StringIO()
    console = Console(is_quiet=True, out=out, err=err)
    console.say("seven")
    console.insist("isolation is off")
    assert err.getvalue() == "isolation is off\n"


def test_nothing_is_redrawn_where_nobody_looks() -> None:
    err = io.StringIO()
    reporter(Console(out=io.StringIO(), err=err)).progress("building")
    assert err.getvalue() == ""


def test_steps_line_up_with_the_longest_server_from_the_first_on() -> None:
    err = io.StringIO()
    told = reporter(Console(err=err), ["weather", "weather_environment_server"])
    told.step("images", "3 in use")
    told.step("weather_environment_server", "ready")
    first, second = err.getvalue().splitlines()
    assert first.index("3 in use") == second.index("ready")


def test_an_error_wipes_what_another_console_left_in_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    terminal = Terminal()
    reporter(Console(err=terminal)).progress("stopping what was started")
    Console(err=terminal).error(ConfigError("wrong"))
    assert terminal.getvalue().endswith("started\r\x1b[2Kerror: wrong\n")


def test_an_error_shows_what_where_and_what_to_do() -> None:
    err = io.StringIO()
    Console(out=io.StringIO(), err=err).error(
        ConfigError("`num_repeats` must be at least 1, got 0", where="eval.yaml:7", hint="remove the key")
    )
    assert err.getvalue() == (
        "error: `num_repeats` must be at least 1, got 0\n  --> eval.yaml:7\nhint: remove the key\n"
    )


def test_numbers_are_right_aligned_and_words_left() -> None:
    assert table_lines(("SERVER", "REQS"), [("head", 2), ("policy_model", 1432)]) == [
        "SERVER        REQS",
        "head             2",
        "policy_model  1432",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_of_the_talk_that_leaves_does_not_end_a_run() -> None:
    out = io.StringIO()
    console = Console(out=out, err=Closed())
    console.say("ready")
    console.insist("warning")
    console.data("score")
    assert out.getvalue() == "score\n"


def test_a_reader_of_the_data_that_leaves_ends_the_command_without_an_error() -> None:
    with pytest.raises(ReaderGone):
        Console(out=Closed(), err=io.StringIO()).data("row")
