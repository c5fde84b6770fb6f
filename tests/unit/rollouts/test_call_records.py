"""Recorded model calls as the collector reads them (CONTRACT 15.1): what they used, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.contract.captures import CaptureFiles
from gymctl.rollouts.call_records import metrics, read


def write(folder: Path, *exchanges: Any) -> CaptureFiles:
    files = CaptureFiles(folder, "3-0")
    lines = [each if isinstance(each, str) else json.dumps(each) for each in exchanges]
    files.calls.write_text("".join(f"{line}\n" for line in lines))
    return files


def exchange(**response: Any) -> dict[str, Any]:
    return {
        "model_call_id": "c1",
        "status_code": 200,
        "latency_ms": 812.4,
        "request": {},
        "response": response,
    }


def test_the_example_of_15_1(tmp_path) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    calls, gaps, _ = read(write(tmp_path, exchange(usage=usage)))
    assert metrics(calls) == {
        "tokens_in": 10,
        "tokens_out": 5,
        "tokens_reasoning": None,
        "tokens_total": 15,
        "cached_tokens": None,
        "latency_total_ms": 812.4,
        "num_calls": 1,
    }
    expected = {"model_call_id": "c1", "call_index": 0, "status_code": 200, "tokens_in": 10}
    assert calls[0].items() >= (expected | {"latency_total_ms": 812.4}).items()
    assert gaps == []


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (
            {
                "input_tokens": 7,
                "input_tokens_details": {"cached_tokens": 3},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 1},
                "total_tokens": 9,
            },
            (7, 2, 1, 9, 3),
        ),
        (
            {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
            (7, 2, None, 9, 0),
        ),
        (
            {
                "input_tokens": 4,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 1,
                "output_tokens": 2,
            },
            (8, 2, None, 10, 3),
        ),
        ({"input_tokens": "many", "output_tokens": True}, (None, None, None, None, None)),
        (None, (None, None, None, None, None)),
    ],
    ids=["responses", "chat", "messages", "nonsense", "none"],
)
def test_usage_is_read_in_every_dialect(tmp_path, usage, told) -> None:
    [call], _, _ = read(write(tmp_path, exchange(usage=usage)))
    keys = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens")
    assert tuple(call[key] for key in keys) == told


def test_a_damaged_line_hides_no_other_and_keeps_its_number(tmp_path) -> None:
    files = write(tmp_path, exchange(), '{"model_call_id": "c', "[]", exchange())
    calls, gaps, _ = read(files)
    assert [call["call_index"] for call in calls] == [0, 3]
    assert gaps == [{"code": "model_call_capture_records_unreadable", "detail": "2"}]


def test_what_is_missing_has_a_name(tmp_path) -> None:
    files = CaptureFiles(tmp_path, "3-0")
    assert read(files)[1] == [{"code": "model_call_capture_no_records"}]
    files.calls_incomplete.touch()
    assert [gap["code"] for gap in read(files)[1]] == [
        "model_call_capture_no_records",
        "model_call_capture_incomplete",
    ]
    files.calls.mkdir()
    assert [gap["code"] for gap in read(files)[1]] == ["model_call_capture_unreadable"]
