"""The files of cassettes on the host: refused before anything starts, sorted when all has ended."""

from __future__ import annotations

import fcntl
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.cassette import HEADER, line
from gymctl.errors import PrerequisiteError
from gymctl.runtime import cassettes


def config(path: Path, mode: str) -> Any:
    block = SimpleNamespace(implementation="cassette_model", settings={"file": str(path), "mode": mode})
    other = SimpleNamespace(implementation="weather", settings={"file": "/nowhere"})
    return SimpleNamespace(servers={"policy_model": block, "judge_model": block, "weather": other})


def entries(count: int) -> list[bytes]:
    """Lines of `count` requests with one answer each, in the order in which a server would write them."""
    lines: list[bytes] = []
    for index in range(count):
        lines += [
            line({"part": f"p{index}", "value": {"content": f"question {index}"}}),
            line({"request": f"r{index}", "settings": "s", "messages": [f"p{index}"]}),
            line({"answer": f"r{index}", "rollout": f"{index}-0", "n": 0, "json": {"id": index}}),
        ]
    return [line({"part": "s", "value": {}}), *lines]


@given(seed=st.integers(), count=st.integers(0, 5))
def test_the_same_recording_is_the_same_file_whoever_wrote_first(seed: int, count: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        lines = entries(count)
        one.write_bytes(b"".join([line(HEADER), *lines]))
        random.Random(seed).shuffle(lines)
        two.write_bytes(b"".join([line(HEADER), *lines, *lines[:2]]))  # two workers may write the same part
        cassettes.tidy(one)
        cassettes.tidy(two)
        assert one.read_bytes() == two.read_bytes()
        tidy = one.read_bytes()
        cassettes.tidy(one)
        assert one.read_bytes() == tidy


def test_of_two_answers_with_one_name_the_later_stays_and_what_is_torn_or_unused_goes(tmp_path: Path) -> None:
    path = tmp_path / "run.cassette"
    late = line({"answer": "r0", "rollout": "0-0", "n": 0, "json": {"id": "late"}})
    unused = line({"part": "unused", "value": 1})
    path.write_bytes(b"".join([line(HEADER), *entries(1), b'{"answer":"r0","ro\n', unused, late, b'{"part"']))
    cassettes.tidy(path)
    kept = [json.loads(text) for text in path.read_bytes().splitlines()]
    assert kept[0] == HEADER
    assert [entry["json"] for entry in kept if "answer" in entry] == [{"id": "late"}]
    assert [entry["part"] for entry in kept if "part" in entry] == ["p0", "s"]


def test_a_file_that_a_recorder_holds_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.cassette"
    path.write_bytes(b"".join([line(HEADER), *reversed(entries(2))]))
    before = path.read_bytes()
    with path.open("rb") as recorder:
        fcntl.flock(recorder, fcntl.LOCK_SH)
        assert cassettes.finish(config(path, "record")) == [path]
        assert path.read_bytes() == before
    cassettes.finish(config(path, "record"))
    assert path.read_bytes() != before


def test_a_recording_is_begun_and_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.cassette"
    cassettes.prepare(config(path, "record"), None)
    assert path.read_bytes() == line(HEADER)
    other = tmp_path / "rollouts.jsonl"
    other.write_text('{"reward": 1.0}\n')
    with pytest.raises(PrerequisiteError, match="no cassette"):
        cassettes.prepare(config(other, "record"), None)
    assert other.read_text() == '{"reward": 1.0}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such cassette"),
        ("", "no cassette"),
        ('{"x": 1}\n', "no cassette"),
        ('{"gymctl_cassette": 99}\n', "version 99"),
    ],
)
def test_what_cannot_be_played_is_told_before_anything_starts(
    content: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.cassette"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PrerequisiteError, match=said):
        cassettes.prepare(config(path, "replay"), None)
