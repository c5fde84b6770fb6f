"""Reasoning tasks: what counts as an answer. How one is scored is tested where its package is installed,
in tests/integration/servers."""

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
        ("</answer> <answer>never closed 5", ["</answer> <answer>never closed 5", "5"]),
        ("<answer>1</answer> </answer> <answer>", ["1"]),
        ("I say <answer> or <answer>3</answer>", ["3"]),
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


def test_example_rows_name_their_tasks():
    rows = [json.loads(line) for line in (FOLDER / "data" / "example.jsonl").read_text().splitlines()]
    assert len(rows) == 5
    assert all({"family", "seed", "index", "responses_create_params"} <= row.keys() for row in rows)
