"""The command that goes on with a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gymctl.cli.identity import same_command


@pytest.mark.parametrize(
    "typed", [["--max-tokens", "200", "-k", "2"], ["-k", "2", "--max-tokens=200"], ["-k", "2", "--fresh"]]
)
def test_the_cap_at_which_a_run_stopped_is_left_out(
    typed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it the command would stop again before the first rollout: tokens of all sessions count."""
    monkeypatch.setattr(sys, "argv", ["gymctl", "eval", "weather", *typed])
    command = same_command((), Path("x.jsonl"), names_output=False, cap="--max-tokens")
    assert command == "gymctl eval weather -k 2 -o x.jsonl"


def test_caps_that_were_not_reached_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gymctl", "eval", "weather", "--max-cost", "3"])
    assert same_command((), Path("x"), names_output=True) == "gymctl eval weather --max-cost 3"
    assert same_command((), Path("x"), names_output=True, cap="--max-time").endswith("--max-cost 3")
