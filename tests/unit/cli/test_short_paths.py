"""Which part of a path a table shows."""

from __future__ import annotations

from pathlib import Path

from gymctl.cli.short_paths import short_paths

HERE = Path("/home/ann/bench")
CACHE = "/var/cache/gymctl/benchmarks/0123456789abcdef/benchmarks"


def test_a_path_is_shown_from_here_and_a_long_one_by_its_end() -> None:
    paths = [
        "rows.jsonl",
        f"{HERE}/data/rows.jsonl",
        "/tmp/rows.jsonl",
        f"{CACHE}/weather/data/weather.jsonl",
    ]
    assert list(short_paths(paths, HERE).values()) == [
        "rows.jsonl",
        "data/rows.jsonl",
        "/tmp/rows.jsonl",
        "…/weather.jsonl",
    ]


def test_two_that_end_alike_are_told_apart() -> None:
    one, two = f"{CACHE}/a/rows.jsonl", f"{CACHE}/b/rows.jsonl"
    assert dict(short_paths([one, two], HERE)) == {one: "…/a/rows.jsonl", two: "…/b/rows.jsonl"}
    assert short_paths([one, "rows.jsonl"], HERE)[one] == "…/a/rows.jsonl"
