"""Recorded token ids at the collector (CONTRACT 15.3): rebuilt exactly, or masked with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.contract.captures import CaptureFiles, digest
from gymctl.errors import RunError
from gymctl.rollouts.tokens import Tokens

CALL = {"type": "function_call", "call_id": "t1", "name": "get", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "t1", "output": "ok"}
ANSWER = {"type": "message", "role": "assistant", "content": []}


def entry(number: int, prompt: list[int], made: list[int], parent: int | None, *items: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "model_call_id": f"c{number}",
        "response_id": f"resp_{number}",
        "prompt_token_ids": prompt,
        "generation_token_ids": made,
        "generation_log_probs": [-0.5] * len(made),
        "output_items": list(items),
        "token_item_index": len(items) - 1,
        "cum_len": len(prompt) + len(made),
        "digest": digest([*prompt, *made]),
        "parent_call_id": None if parent is None else f"c{parent}",
        "parent_resolution": "root" if parent is None else "resolved",
    }


TWO = (entry(1, [1, 2], [3], None, CALL), entry(2, [1, 2, 3, 4], [5], 1, ANSWER))


def write(folder: Path, *entries: dict[str, Any], incomplete: bool = False) -> None:
    files = CaptureFiles(folder, "3-0")
    files.tokens.write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    files.tokens_state.write_text(json.dumps({"incomplete": incomplete}))


def attached(folder: Path, **more: Any) -> dict[str, Any]:
    options = {key: more.pop(key) for key in ("rebuilds", "allow_unresolved") if key in more}
    record: dict[str, Any] = {
        "_ng_environment_server": "env",
        "response": {"id": "resp_2", "output": [CALL, OUTPUT, ANSWER]},
        "reward": 1.0,
        **more,
    }
    Tokens(folder, {"env"}, **options).attach(record, "3-0")
    return record


def test_each_calls_tokens_go_back_to_its_item_and_nothing_else_changes(tmp_path) -> None:
    write(tmp_path, *TWO)
    record = attached(tmp_path)
    call, output, answer = record["response"]["output"]
    assert (call["prompt_token_ids"], call["generation_token_ids"]) == ([1, 2], [3])
    assert (answer["prompt_token_ids"], answer["generation_log_probs"]) == ([1, 2, 3, 4], [-0.5])
    assert output == OUTPUT
    assert record["_ng_token_capture"]["error"] is None
    assert record["_ng_token_capture"]["metrics"]["generated_tokens_delivered"] == 2
    assert "mask_sample" not in record


def test_with_rebuild_response_off_only_the_metrics_are_added(tmp_path) -> None:
    write(tmp_path, *TWO)
    record = attached(tmp_path, rebuilds=False)
    assert record["response"]["output"] == [CALL, OUTPUT, ANSWER]
    assert record["_ng_token_capture"]["metrics"]["chain_calls"] == 2


def test_an_output_that_has_tokens_is_left_alone(tmp_path) -> None:
    output = [{**ANSWER, "generation_token_ids": [9]}]
    record = attached(tmp_path, response={"id": "resp_2", "output": output})
    assert record["response"]["output"] is output
    assert "mask_sample" not in record


@pytest.mark.parametrize("named", [{"_ng_terminal_model_call_id": "c2"}, {"terminal_response_id": "resp_2"}])
def test_a_result_may_name_the_call_that_was_scored(tmp_path, named) -> None:
    retried = entry(3, [1, 2, 3, 4], [6], 1, ANSWER)
    write(tmp_path, *TWO, retried)
    response = {"id": "the agent's own", "output": [CALL, OUTPUT, ANSWER]}
    assert "2 of 3 calls could be" in attached(tmp_path, response=response)["_ng_token_capture"]["error"]
    record = attached(tmp_path, response=response, **named)
    assert record["response"]["output"][2]["generation_token_ids"] == [5]


UNRESOLVED = {**TWO[1], "parent_call_id": None, "parent_resolution": "unresolved"}


@pytest.mark.parametrize(
    ("entries", "more", "reason"),
    [
        ((), {}, "0 of 0 calls"),
        ((TWO[0], {**TWO[1], "prompt_token_ids": [1, 2, 9, 4]}), {}, "do not go on from `c1`"),
        ((TWO[1],), {}, "`c1` is not on record"),
        (TWO, {"_ng_terminal_model_call_id": "gone"}, "`gone` is not on record"),
        (TWO, {"response": {"id": "resp_2", "output": [ANSWER]}}, "not what the calls on record answered"),
        ((TWO[0], UNRESOLVED), {}, "before `c2` is not on record"),
        (({**TWO[0], "schema_version": 2}, TWO[1]), {}, "another version than 1"),
        ((TWO[0], {"schema_version": 1}), {}, "cannot be understood"),
    ],
)
def test_what_cannot_be_trained_on_is_masked_and_keeps_its_response(tmp_path, entries, more, reason) -> None:
    write(tmp_path, *entries)
    record = attached(tmp_path, **more)
    assert record["mask_sample"] is True
    assert reason in record["_ng_token_capture"]["error"]
    assert not any("prompt_token_ids" in item for item in record["response"]["output"])


def test_missing_files_lines_and_states_mask_too(tmp_path) -> None:
    assert attached(tmp_path)["_ng_token_capture"]["error"] == "no token ids are on record"
    write(tmp_path, *TWO, incomplete=True)
    assert attached(tmp_path)["_ng_token_capture"]["error"] == "the tokens of a call are missing"


def test_unresolved_continuations_may_be_allowed(tmp_path) -> None:
    write(tmp_path, UNRESOLVED)
    response = {"id": "resp_2", "output": [ANSWER]}
    assert attached(tmp_path, response=response)["mask_sample"] is True
    assert "mask_sample" not in attached(tmp_path, response=response, allow_unresolved=True)


def test_failures_and_servers_that_take_no_part_get_nothing(tmp_path) -> None:
    for more in ({"_ng_failure_class": "agent_run_error"}, {"_ng_environment_server": "other"}):
        assert "_ng_token_capture" not in attached(tmp_path, **more)


def test_more_masked_than_allowed_end_the_run_but_not_before_the_minimum(tmp_path) -> None:
    tokens = Tokens(tmp_path, {"env"}, max_mask_fraction=0.5, min_samples=3)
    good, bad = ({"_ng_token_capture": {"error": error}} for error in (None, "no"))
    for record in (bad, bad):
        tokens.check(record)
    tokens.check({"reward": 1.0})
    with pytest.raises(RunError, match="2 of 3 rollouts have no usable token ids"):
        tokens.check(good)
