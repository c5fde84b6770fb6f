"""`kill -9` of the client and of servers at random points: the run is gone on with, and nothing is lost,
doubled or made up.

The long form: GYMCTL_KILLS=100 GYMCTL_KILL_ROLLOUTS=500 pytest tests/integration/evaluation/test_kills.py,
with another GYMCTL_KILL_SEED for other points.
"""

from __future__ import annotations

import json
import os
import random
import socket
from pathlib import Path

import pytest
from fakes.counting import expected, row
from fakes.kills import Blow, Ordeal, counted, kill_client, kill_server, whole
from fakes.program import gymctl, processes_below

KILLS = int(os.environ.get("GYMCTL_KILLS", "3"))
ROLLOUTS = int(os.environ.get("GYMCTL_KILL_ROLLOUTS", "30"))
SEED = int(os.environ.get("GYMCTL_KILL_SEED", "20261130"))
SLOW = "++policy_model.responses_api_models.scripted_model.faults.latency_ms=100"


def write_rows(path: Path) -> None:
    """Two rollouts of each; every third row expects something else and is scored 0."""
    rows = [row(number) for number in range(ROLLOUTS // 2)]
    for number, item in enumerate(rows):
        item["expected_count"] = expected(number) + (number % 3 == 0)
    path.write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")


def arguments(output: str) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        head = f"++head_server.port={probe.getsockname()[1]}"
    return [
        *("eval", "--resources-server", "counter", "--model-type", "scripted_model", "--runtime", "process"),
        *("-i", "rows.jsonl", "-k", "2", "-o", output, "--concurrency", "4", "--json", head, SLOW),
    ]


def drawn(seed: int) -> list[Blow]:
    """As many against servers as against the client, in an order of their own."""
    draw = random.Random(f"blows {seed}")
    blows = [kill_client if number % 2 else kill_server(draw) for number in range(KILLS)]
    draw.shuffle(blows)
    return blows


@pytest.mark.timeout(300 + 120 * KILLS)
def test_kills_lose_nothing_and_score_nothing_twice(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl")
    ordeal = Ordeal(tmp_path, arguments("struck.jsonl"), ROLLOUTS, SEED)
    ordeal.strike(drawn(SEED))
    struck = ordeal.finish()
    records = whole(ordeal.output)
    for record in records:
        number = record["_ng_task_index"]
        counted(record)
        assert record["reward"] == (0.0 if number % 3 == 0 else 1.0)
    left_alone = gymctl(*arguments("whole.jsonl"), cwd=tmp_path)
    assert left_alone.returncode == 0, left_alone.stderr
    reference = json.loads(left_alone.stdout)
    struck["rollouts"].pop("retried")
    assert reference["rollouts"].pop("retried") == 0
    for name in (
        "reward",
        "interval_95",
        "bounds",
        "pooled_mean",
        "coverage",
        "tasks",
        "rollouts",
        "pass_at",
    ):
        assert struck[name] == reference[name], name
    assert struck["tokens"] == reference["tokens"]
    assert processes_below(tmp_path) == []
