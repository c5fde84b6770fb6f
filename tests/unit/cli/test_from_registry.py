"""Which words of a command line mean something in a registry, and what `verify` takes for a lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.cli import from_registry, verify
from gymctl.cli.output import Console
from gymctl.cli.selection import Chosen
from gymctl.errors import UsageError


@pytest.mark.parametrize(
    "tokens", [None, [], ["weather"], ["weather/live"], ["a.yaml"], ["+a.b=localhost:5000/x"], ["./x.yaml"]]
)
def test_benchmarks_files_and_overrides_are_left_as_they_are(tokens: list[str] | None) -> None:
    chosen = Chosen({"tokens": tokens})
    found = from_registry.opened(chosen, Console())
    assert found.chosen is chosen
    assert found.locked_by(None) is None
    assert found.locked_by(Path("images.lock.json")) == Path("images.lock.json")


def test_two_references_and_one_that_is_none_are_refused() -> None:
    with pytest.raises(UsageError, match="one benchmark"):
        from_registry.opened(Chosen({"tokens": ["localhost:1/a", "localhost:1/b"]}), Console())
    with pytest.raises(UsageError, match="no reference"):
        from_registry.opened(Chosen({"tokens": ["localhost:1/A"]}), Console())


def test_lock_of_ones_own_does_not_go_with_a_benchmark_that_brings_one() -> None:
    found = from_registry.Opened(Chosen({}), Path("theirs.json"))
    assert found.locked_by(None) == Path("theirs.json")
    with pytest.raises(UsageError, match="locked anyway"):
        found.locked_by(Path("mine.json"))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("images.lock.json", "broken", True),
        ("other.json", '{"images": []}', True),
        ("passport.json", '{"images": {}}', False),
        ("other.json", "[]", False),
        ("other.json", "broken", False),
        ("rollouts.jsonl", '{"images": []}', False),
    ],
)
def test_lock_is_known_by_its_name_or_content(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert verify.is_lock_file(file) is expected
    assert not verify.is_lock_file(tmp_path / "missing.lock.json")
