"""Which run a RUN argument means."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.cli.runs import outputs, register, resolve
from gymctl.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("monday", "tuesday", "weather-1", "weather-2"):
        output = tmp_path / "out" / f"{name}.jsonl"
        output.parent.mkdir(exist_ok=True)
        output.touch()
        register(output, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("@last", "weather-2"),
        ("@-1", "weather-2"),
        ("@-3", "tuesday"),
        ("monday", "monday"),
        ("mon", "monday"),
        ("weather-1.jsonl", "weather-1"),
        ("out/weather-1", "weather-1"),
        ("./out/../out/weather-1.jsonl", "weather-1"),
    ],
)
def test_a_run_is_found_by_place_and_by_name(folder: Path, text: str, name: str) -> None:
    assert resolve(text, folder).stem == name


def test_a_path_needs_no_list(tmp_path: Path) -> None:
    file = tmp_path / "foreign.jsonl"
    file.touch()
    assert resolve(str(file), tmp_path / "nowhere") == file


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("weather", "several runs are called so"),
        ("friday", "there is no such file"),
        ("@-9", "4 runs of this folder are known"),
        ("@-0", "there is no such file"),
        (".", "that is a folder"),
        ("elsewhere/monday", "there is no such file"),
        ("elsewhere/monday.jsonl", "there is no such file"),
    ],
)
def test_what_is_not_found_is_told_with_what_there_is(folder: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        resolve(text, folder)
    assert "weather-2.jsonl" in "".join(caught.value.details)


def test_a_run_that_is_made_again_is_the_latest_and_a_removed_one_is_none(folder: Path) -> None:
    register(folder / "out" / "monday.jsonl", folder)
    (folder / "out" / "weather-2.jsonl").unlink()
    assert [output.stem for output in outputs(folder)] == ["tuesday", "weather-1", "monday"]


def test_a_damaged_list_is_read_as_far_as_it_goes(folder: Path) -> None:
    with (folder / ".gymctl" / "runs.jsonl").open("ab") as file:
        file.write(b'[1]\n{"output": 3}\nnope\n{"out')
    assert resolve("@last", folder).stem == "weather-2"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("mondy", "did you mean `monday`?"),
        ("tuesday2.jsonl", "did you mean `tuesday`?"),
        ("out/mondai.jsonl", "did you mean `out/monday.jsonl`?"),
        ("xyzzy", "name the rollouts file, such as results/run.jsonl"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(folder: Path, text: str, hint: str) -> None:
    (folder / "out" / "mondai_failures.jsonl").touch()
    with pytest.raises(UsageError) as caught:
        resolve(text, folder)
    assert caught.value.hint == hint
