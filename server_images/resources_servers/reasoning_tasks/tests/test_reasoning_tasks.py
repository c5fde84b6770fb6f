"""Reasoning tasks: what counts as an answer, and how it is scored."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1]
IMAGE = "resources_servers/reasoning_tasks"
ROW = {"family": "chain_sum", "seed": 7, "index": 0}
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed here"
)


def module(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"reasoning_tasks_{file}", FOLDER / f"{file}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The answer is 7.", ["The answer is 7.", "7"]),
        ("<answer> 12 </answer> or 13", ["12"]),
        ("<answer>1</answer><ANSWER>2</ANSWER>", ["2"]),
        ("<answer></answer> 5", [""]),
        ("so 1,234 it is", ["so 1,234 it is", "1234"]),
        ("-3.5", ["-3.5"]),
        ("Lily is an egoist", ["Lily is an egoist"]),
        ("  ", []),
    ],
)
def test_candidates_follow_the_documented_rule(text, found):
    assert module("app").candidates(text) == found


def test_satisfiability_finds_exactly_the_solutions():
    solver, dice = module("pycosat"), random.Random(5)
    for _ in range(150):
        variables = dice.randint(1, 6)
        clauses = [
            [dice.choice((-1, 1)) * dice.randint(1, variables) for _ in range(dice.randint(1, 3))]
            for _ in range(dice.randint(1, 14))
        ]
        used = sorted({abs(literal) for clause in clauses for literal in clause})
        wanted = {
            signs
            for signs in product(*((variable, -variable) for variable in used))
            if all(set(clause) & set(signs) for clause in clauses)
        }
        found = [tuple(solution) for solution in solver.itersolve(clauses)]
        assert len(found) == len(set(found))
        assert set(found) == wanted


def answered(text: str, **row: object) -> dict:
    part = {"type": "output_text", "text": text, "annotations": []}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    return {"responses_create_params": {"input": "?"}, "response": {"output": output}, **row}


@needs_package
async def test_the_right_answer_scores_one_and_no_answer_scores_nothing(start, client):
    import reasoning_gym

    url = await start(IMAGE, "reasoning_tasks", {"domain": "math"})
    truth = reasoning_gym.create_dataset("chain_sum", seed=7, size=1)[0]["answer"]
    for text in (truth, f"The answer is {truth}.", f"<answer>{truth}</answer>"):
        verdict = (await client.post(f"{url}/verify", answered(text, **ROW))).json()
        assert (verdict["reward"], verdict["extracted_answer"]) == (1.0, truth)
        assert verdict["family"] == "chain_sum"
    assert (await client.post(f"{url}/verify", answered("", **ROW))).json()["reward"] == 0.0


@needs_package
async def test_an_answer_that_a_family_cannot_read_is_wrong_not_an_error(start, client):
    url = await start(IMAGE, "reasoning_tasks")
    row = {"family": "prime_factorization", "seed": 1, "index": 0}
    verdict = await client.post(f"{url}/verify", answered("no idea", **row))
    assert (verdict.status, verdict.json()["reward"]) == (200, 0.0)


@needs_package
async def test_an_unknown_family_is_an_error_that_names_it(start, client):
    url = await start(IMAGE, "reasoning_tasks")
    verdict = await client.post(f"{url}/verify", answered("1", **{**ROW, "family": "nonsense"}))
    assert verdict.status == 500
    assert b"nonsense" in verdict.body


def test_example_rows_name_their_tasks():
    rows = [json.loads(line) for line in (FOLDER / "data" / "example.jsonl").read_text().splitlines()]
    assert len(rows) == 5
    assert all({"family", "seed", "index", "responses_create_params"} <= row.keys() for row in rows)
