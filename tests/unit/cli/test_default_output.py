"""The output of a run for which nobody named one."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from gymctl.cli.eval_input import default_outputs


def test_b107_names_are_short_plain_and_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "20261130-120000")
    title = "org/model:7b " * 40
    first, second, third = islice(default_outputs(title), 3)
    assert len({first, second, third}) == 3
    for path in (first, second, third):
        assert path.parent == Path("results")
        assert len(path.name.encode()) <= 150 - len("_materialized_inputs.jsonl")
        assert not set("/: ") & set(path.name)
    first.parent.mkdir()
    first.write_text("")
    second.with_suffix("").mkdir()  # a run that has not written a line yet
    assert next(default_outputs(title)) == third
