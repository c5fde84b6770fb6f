"""Recorded rollouts and their tasks, put together again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peer import page
from peer.recorded import Turn, lines, rollouts, same_prompt, scripted, tasks, turns
from peer.server import Result, Rows

SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "B"}]}
CALL = {"type": "function_call", "name": "look", "arguments": '{"at": 1}', "call_id": "c1"}
SEEN = {"type": "function_call_output", "call_id": "c1", "output": "nothing"}


def write(file: Path, *rows: dict[str, Any]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def rollout(text: str, *output: dict[str, Any], **more: Any) -> dict[str, Any]:
    given = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]
    params = {"input": given, "tool_choice": None, "tools": [{"type": "function", "name": "look"}]}
    response = {"output": list(output), "usage": {"prompt_tokens": 3}}
    return {"responses_create_params": params, "response": response, "reward": 1, **more}


def task(text: str, **more: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": [{"role": "user", "content": text}]}, **more}


def test_a_rollout_gets_the_ground_truth_of_the_task_with_the_same_prompt(tmp_path: Path) -> None:
    write(tmp_path / "example.jsonl", task("one", answer="A"), task("two", answer="B"))
    write(tmp_path / "example_rollouts.jsonl", rollout("two", SAID, answer="of the verifier"))
    [found] = rollouts(tmp_path)
    assert (found.request["answer"], found.reward, found.has_task_row) == ("B", 1.0, True)
    assert same_prompt(tasks(tmp_path)[1], [found]) is found
    assert same_prompt(tasks(tmp_path)[0], [found]) is None


def test_a_task_that_only_another_example_file_has_is_found(tmp_path: Path) -> None:
    write(tmp_path / "example.jsonl", task("one", answer="A"))
    write(tmp_path / "old_example.jsonl", task("two", answer="B"))
    write(tmp_path / "example_rollouts.jsonl", rollout("two", SAID))
    assert rollouts(tmp_path)[0].request["answer"] == "B"


def test_prompts_that_differ_in_their_image_are_two(tmp_path: Path) -> None:
    def looking(image: str) -> dict[str, Any]:
        row = rollout("how many?", SAID)
        row["responses_create_params"]["input"][0]["content"].append(
            {"type": "input_image", "image_url": image}
        )
        return row

    write(tmp_path / "example.jsonl", *({**looking(one), "response": None, "image": one} for one in "ab"))
    write(tmp_path / "example_rollouts.jsonl", looking("b"), looking("a"))
    assert [found.request["image"] for found in rollouts(tmp_path)] == ["b", "a"]


def test_a_prompt_that_the_environment_wrote_into_is_known_by_its_beginning_and_index(tmp_path: Path) -> None:
    write(tmp_path / "example.jsonl", task("play", seed=1), task("play", seed=2))
    written = rollout("play", SAID, _ng_task_index=1)
    written["responses_create_params"]["input"].append({"role": "user", "content": "your hand: 17"})
    other = rollout("something else", SAID, _ng_task_index=1)
    write(tmp_path / "example_rollouts.jsonl", written, other)
    first, second = rollouts(tmp_path)
    assert (first.request["seed"], first.has_task_row) == (2, True)
    assert ("seed" in second.request, second.has_task_row) == (False, False)


def test_what_older_rows_lack_or_have_too_much_is_mended(tmp_path: Path) -> None:
    write(tmp_path / "example_rollouts.jsonl", rollout("two", SAID))
    [found] = rollouts(tmp_path)
    params, response = found.request["responses_create_params"], found.request["response"]
    assert "tool_choice" not in params
    assert params["tools"] == [{"strict": None, "type": "function", "name": "look"}]
    assert "usage" not in response
    assert response["object"] == "response"


def test_rollouts_without_a_reward_or_an_output_are_left_out(tmp_path: Path) -> None:
    silent = rollout("two")
    unscored = {**rollout("two", SAID), "reward": None}
    write(tmp_path / "example_rollouts.jsonl", silent, unscored)
    assert rollouts(tmp_path) == []
    (tmp_path / "example_rollouts.jsonl").write_text("<PLACEHOLDER>\n")
    assert lines(tmp_path / "example_rollouts.jsonl") == []


def test_a_trajectory_is_cut_where_something_came_back() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    second = {**CALL, "call_id": "c2"}
    user = {"role": "user", "content": "and now?"}
    found = turns([thought, CALL, second, SEEN, {**SEEN, "call_id": "c2"}, SAID, user, SAID])
    assert [len(turn.items) for turn in found] == [3, 1, 1]
    call = {"name": "look", "arguments": '{"at": 1}'}
    assert found[0].written() == {"text": "", "reasoning": "hm", "calls": [call, call]}
    assert found[1].written() == {"text": "B", "reasoning": "", "calls": []}


def test_a_row_brings_its_script_beside_its_own_metadata() -> None:
    row = {"responses_create_params": {"input": "x", "metadata": {"own": "1"}}, "answer": "B"}
    made = scripted(row, [Turn([SAID])])
    metadata = made["responses_create_params"]["metadata"]
    assert (metadata["own"], made["answer"]) == ("1", "B")
    assert json.loads(metadata["script"]) == [{"text": "B", "reasoning": "", "calls": []}]
    assert row["responses_create_params"]["metadata"] == {"own": "1"}


def test_the_table_is_put_between_its_marks(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    rows = Rows("simple_agent", asked=5, scored=5)
    good = Result("quiz", built=True, started=True, recorded=5, equal=5, theirs=rows, ours=rows)
    bad = Result("broken", needs=["network"], built=False, started=False, note="a | b\nfailed")
    page.write(file, [good, bad], "nemo-gym==0.7.0", 3)
    text = file.read_text()
    assert "| quiz | yes | yes | 5/5 | 5/5 | 5/5 |  |" in text
    assert "| broken | no | no |  |  |  | needs network; a \\| b failed |" in text
    assert "2 of 3 servers: 1 built, 1 started" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_a_page_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("nothing\n")
    with pytest.raises(ValueError, match="is not there"):
        page.write(file, [], "nemo-gym==0.7.0", 3)
    assert file.read_text() == "nothing\n"
