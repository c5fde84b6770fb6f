"""Rows from files: what is accepted, and the file and line of what is not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gymctl.errors import ConfigError, UsageError
from gymctl.rollouts.dataset import Source, read
from gymctl.rollouts.encoding import dumps, loads

GOOD = '{"responses_create_params":{"input":"hi"},"n":%d}'


def rows(path: Path, limit: int | None = None) -> list[tuple[int, int]]:
    return [(row.line, row.row["n"]) for row in read([Source(path)], limit)]


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "\n".join([GOOD % 1, GOOD % 2]) + "\n",
        "\n".join([GOOD % 1, GOOD % 2]),
        "\ufeff" + "\n".join([GOOD % 1, GOOD % 2]),
        "\r\n".join([GOOD % 1, GOOD % 2]) + "\r\n",
    ],
    ids=["plain", "no last newline", "byte order mark", "crlf"],
)
def test_harmless_quirks_are_accepted(tmp_path: Path, text: str) -> None:
    assert rows(write(tmp_path, text)) == [(1, 1), (2, 2)]


def test_blank_lines_are_skipped_and_keep_line_numbers(tmp_path: Path) -> None:
    assert rows(write(tmp_path, f"\n{GOOD % 1}\n   \n{GOOD % 2}\n")) == [(2, 1), (4, 2)]


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u001c"])
def test_only_a_newline_ends_a_line(tmp_path: Path, character: str) -> None:
    text = '{"responses_create_params":{"input":"a%sb"},"n":1}' % (
        character if character > "\x1f" else json.dumps(character)[1:-1]
    )
    path = write(tmp_path, f"{text}\n{GOOD % 2}\n")
    assert [line for line, _ in rows(path)] == [1, 2]
    assert next(read([Source(path)])).row["responses_create_params"]["input"] == f"a{character}b"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{nope", "not JSON"),
        ("# comment", "not JSON"),
        ("[1]", "must be a JSON object, found a list"),
        ("null", "must be a JSON object, found nothing"),
        ("{}", "needs `responses_create_params`"),
        ('{"responses_create_params":{}}', "needs `input`"),
        ('{"responses_create_params":{"input":3}}', "needs `input`"),
        ('{"responses_create_params":{"input":"x"},"agent_ref":"a"}', "agent_ref"),
        ('{"responses_create_params":{"input":"x"},"_ng_task_index":"1"}', "_ng_task_index"),
        ('{"responses_create_params":{"input":"x"},"_ng_rollout_id":"-"}', "_ng_rollout_id"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, line: str, what: str) -> None:
    path = write(tmp_path, f"{GOOD % 1}\n\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        rows(path)
    assert what in caught.value.what
    assert caught.value.where == f"{path}:3"


def test_broken_utf8_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.encode() % 1 + b'\n{"a":"\xff"}\n')
    with pytest.raises(ConfigError) as caught:
        rows(path)
    assert caught.value.where == f"{path}:2"


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_a_file_without_rows_has_none(tmp_path: Path, text: str) -> None:
    """BUG_CASES B97."""
    assert rows(write(tmp_path, text)) == []


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        rows(tmp_path / "none.jsonl")


def test_limits(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(GOOD % n for n in range(5)))
    assert len(rows(path)) == 5
    assert len(rows(path, 2)) == 2
    assert rows(path, 0) == []
    assert len(rows(path, 99)) == 5
    with pytest.raises(UsageError):
        rows(path, -1)


def test_a_limit_spans_sources_and_stops_before_later_bad_rows(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text(GOOD % 1)
    second.write_text(f"{GOOD % 2}\nbroken\n")
    assert [row.row["n"] for row in read([Source(first), Source(second)], 2)] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":123456789012345678901234567890}',
        b'{"a":-18446744073709551617}',
        b'{"a":NaN}',
        b'{"a":[-Infinity,{"b":null}]}',
        b'{"a":"\\ud800"}',
        b'{"a":null}',
    ],
)
def test_values_beyond_orjson_survive_a_round_trip(line: bytes) -> None:
    again = dumps(loads(line))
    assert repr(json.loads(again)) == repr(json.loads(line))
    assert b"\n" not in again


def test_a_pipe_is_refused_instead_of_found_empty_the_second_time(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="a pipe or a device") as caught:
        rows(tmp_path / "pipe")
    assert caught.value.where == f"{tmp_path}/pipe"
