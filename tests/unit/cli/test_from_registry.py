"""Which words of a command line mean something in a registry, and what `verify` takes for a lock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gymctl.cli import from_registry, verify
from gymctl.cli.output import Console
from gymctl.cli.packed import Opened
from gymctl.cli.selection import Chosen
from gymctl.config.load import load
from gymctl.errors import UsageError
from gymctl.paths import bundled


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
    assert verify.is_lock_file(tmp_path / "missing.lock.json"), "so that is what is told to be missing"
    assert not verify.is_lock_file(tmp_path / "missing.json")


def test_files_that_a_packed_benchmark_goes_before_are_no_warning(tmp_path: Path) -> None:
    shutil.copytree(bundled() / "benchmarks" / "weather", tmp_path / "benchmarks" / "weather")
    with (tmp_path / "benchmarks" / "weather" / "config.yaml").open("a") as file:
        file.write("# of another version\n")
    named = ("localhost:1/weather", "sha256:1")
    found = Opened.of(Chosen({"tokens": ["localhost:1/weather"]}), named[0], tmp_path, "weather", named)
    packed = load(found.chosen.selection(needs_model=False))
    assert packed.search_roots[0] == tmp_path
    assert not [one for one in packed.warnings if "hides" in one]
    own = Chosen({"tokens": ["weather"], "search_dir": [str(tmp_path)]})
    assert [one for one in load(own.selection(needs_model=False)).warnings if "hides" in one]


def test_verify_of_a_bundle_says_what_checks_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError) as caught:
        verify.command("weather.gymb")
    assert "gymctl unbundle weather.gymb --dry-run" in str(caught.value)
