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


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        (
            "/bin/ng_collect_rollouts +agent_name=desk +input_jsonl_fpath=i.jsonl",
            "ng_collect_rollouts +agent_name=desk +input_jsonl_fpath=i.jsonl +output_jsonl_fpath=x"
            " +resume_from_cache=true",
        ),
        ("gym eval run --no-serve -i i", "gym eval run --no-serve -i i -o x +resume_from_cache=true"),
        ("gym eval run --resume", "gym eval run --resume -o x"),
        ("ng_collect_rollouts ++resume_from_cache=true", None),
    ],
)
def test_the_peers_spelling_is_told_to_go_on(
    typed: str, again: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the same command would replace what is finished."""
    monkeypatch.setattr(sys, "argv", typed.split())
    again = again or f"{typed} +output_jsonl_fpath=x"
    assert same_command((), Path("x"), names_output=False) == again
