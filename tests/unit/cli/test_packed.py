"""The command that is printed for a cassette plays back what is in it, and asks for nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gymctl.cli.packed import command
from gymctl.contract import cassette

PLACE = "cassettes/a.cassette"


def recorded(folder: Path, *rollouts: str) -> Path:
    lines = [cassette.HEADER, *({"answer": "a", "rollout": name, "n": 0} for name in rollouts)]
    file = folder / "a.cassette"
    file.write_text("\n".join(map(json.dumps, lines)) + '\n{"torn')
    return file


@pytest.mark.parametrize(
    ("rollouts", "flags"),
    [
        (("0-0", "0-1", "1-0", "1-1", "2-0", "2-1", "2-1"), " --limit 3 -k 2"),
        (("0-0",), " --limit 1 -k 1"),
        (("0-0", "0-1", "1-0"), ""),  # one was never recorded
        (("1-0", "2-0"), ""),  # not the first tasks
        ((), ""),
        (("0-0", "a"), " --limit 1 -k 1"),
    ],
)
def test_as_many_tasks_and_attempts_as_are_in_it(
    tmp_path: Path, rollouts: tuple[str, ...], flags: str
) -> None:
    held = {PLACE: recorded(tmp_path, *rollouts)}
    assert command("a.gymb", "", held) == f"gymctl eval a.gymb --model replay:{PLACE}{flags}"


def test_without_the_file_the_model_alone_is_named(tmp_path: Path) -> None:
    for file in (None, tmp_path / "gone"):
        assert command("a.gymb", "", {PLACE: file}) == f"gymctl eval a.gymb --model replay:{PLACE}"


def test_the_cassette_that_the_documentation_shows_has_twenty_tasks() -> None:
    file = Path(__file__).parents[3] / "benchmarks/arithmetic/smollm2.cassette"
    assert command("c d", "", {"c": file}) == "gymctl eval 'c d' --model replay:c --limit 20 -k 2"


def test_only_a_benchmark_without_a_model_of_its_own_asks_for_one() -> None:
    assert command("a.gymb", "", {}) == "gymctl eval a.gymb --model-type NAME"
    assert command("a.gymb", "scripted_model", {}) == "gymctl eval a.gymb"
