"""Files that survive a crash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.rollouts import lines


@given(
    rows=st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), max_size=5),
    cut=st.integers(0, 200),
)
def test_after_any_cut_whole_lines_stay_and_only_the_torn_one_goes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.jsonl"
    whole = [json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") for row in rows]
    text = b"".join(line + b"\n" for line in whole)
    path.write_bytes(text[: max(0, len(text) - cut)])
    lines.mend(path)
    left = path.read_bytes()
    assert left == b"" or left.endswith(b"\n")
    found = left.split(b"\n")[:-1]
    assert found == whole[: len(found)]
    left_whole = text[: max(0, len(text) - cut)].count(b"\n")
    assert len(found) >= left_whole


def test_a_long_torn_line_is_found_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"n":1}\n{"text":"' + b"x" * 300_000)
    assert lines.mend(path) == 300_009
    assert path.read_bytes() == b'{"n":1}\n'
    assert lines.mend(tmp_path / "nothing") == 0


def test_b105_a_document_is_replaced_as_a_whole_with_mode_and_owner_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"")
    path.chmod(0o640)
    lines.replace(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        lines.replace(path, broken())
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
