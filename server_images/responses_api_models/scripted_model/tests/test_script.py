"""Scripts and faults of the scripted model."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.errors import ConfigError


def _beside(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"scripted_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script, faults = _beside("script"), _beside("faults")

CALL = {"calls": [{"name": "f", "arguments": {"x": 1}}]}


def test_the_turn_is_counted_by_tool_results():
    two_calls = {"text": "both", "calls": [{"name": "f"}, {"name": "g"}]}
    turns = script.from_metadata(json.dumps([CALL, two_calls, "done"])).turn
    assert [turns(outputs).text for outputs in range(6)] == ["", "both", "both", "done", "done", "done"]


def test_a_turn_that_only_says_something_is_done_when_it_was_said():
    turns = script.from_metadata(json.dumps(["hit", "hit again", "stand"])).turn
    assert [turns(0, answers).text for answers in range(5)] == ["hit", "hit again", "stand", "stand", "stand"]
    mixed = script.from_metadata(json.dumps([{**CALL, "text": "look"}, "seen", CALL, "done"])).turn
    said = [mixed(outputs, answers) for outputs, answers in [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)]]
    assert [turn.text for turn in said] == ["look", "look", "seen", "", "done", "done"]


def test_arguments_are_json_or_sent_as_they_are():
    turn = script.from_metadata(json.dumps([{"calls": [{"name": "f", "arguments": "{broken"}]}])).turn(0)
    assert turn.calls[0].arguments_text == "{broken"
    assert json.loads(script.from_metadata(json.dumps([CALL])).turn(0).calls[0].arguments_text) == {"x": 1}


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"text": "x"}', '[{"txt": "x"}]', "[1]"])
def test_a_script_that_is_none_says_so(text: str):
    with pytest.raises(ValueError, match=r"metadata\.script"):
        script.from_metadata(text)


def test_files_hold_several_scripts(tmp_path: Path):
    yaml = tmp_path / "s.yaml"
    yaml.write_text("- when: Oslo\n  turns:\n    - calls: [{name: f}]\n    - snow\n- turns: [no idea]\n")
    assert [entry.when for entry in script.from_file(yaml)] == ["Oslo", ""]
    jsonl = tmp_path / "s.jsonl"
    jsonl.write_text('{"when": "a", "turns": ["x"]}\n\n{"turns": ["y"]}\n')
    assert [entry.turn(0).text for entry in script.from_file(jsonl)] == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("s.jsonl", '{"turns": ["x"]}\n{oops\n', "s.jsonl:2"),
        ("s.yaml", "turns: [x]\n", "s.yaml"),
        ("s.yaml", "[", "s.yaml"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, name: str, text: str, place: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        script.from_file(tmp_path / name)
    assert str(caught.value.where).endswith(place)
    with pytest.raises(ConfigError, match="cannot be read"):
        script.from_file(tmp_path / "absent.yaml")


PLAN = faults.Faults(
    statuses={500: 0.1, 429: 0.2}, disconnect_rate=0.1, malformed_call_rate=0.3, jitter_ms=10
)


def fates(seed: int, count: int = 4000) -> list:
    return [faults.fate(PLAN, seed, f"request {number}".encode()) for number in range(count)]


def test_a_fate_depends_on_content_and_seed_alone():
    forwards, backwards = fates(1, 200), fates(1, 200)[::-1]
    assert forwards == backwards[::-1]
    assert forwards != fates(2, 200)


@pytest.mark.parametrize("seed", [0, 7])
def test_faults_come_at_the_planned_rates(seed: int):
    got = fates(seed)
    shares = {
        "500": sum(fate.status == 500 for fate in got),
        "429": sum(fate.status == 429 for fate in got),
        "drop": sum(fate.is_disconnected for fate in got),
        "call": sum(fate.is_call_malformed for fate in got),
    }
    for name, planned in {"500": 0.1, "429": 0.2, "drop": 0.1, "call": 0.3}.items():
        assert shares[name] / len(got) == pytest.approx(planned, abs=0.03), name
    assert not any(fate.status is not None and fate.is_disconnected for fate in got)
    assert all(0 <= fate.delay_seconds <= 0.01 for fate in got)


@given(st.binary(max_size=30), st.integers())
def test_without_faults_nothing_happens_to_any_request(content: bytes, seed: int):
    fate = faults.fate(faults.Faults(), seed, content)
    assert (fate.status, fate.is_disconnected, fate.is_call_malformed, fate.delay_seconds) == (
        None,
        False,
        False,
        0,
    )


def test_rates_above_one_in_sum_are_refused():
    with pytest.raises(ValueError, match="more than 1"):
        faults.Faults(statuses={500: 0.6, 429: 0.5})
