"""`kill -9` of the client and `docker kill` of containers at random points, and restarts of the engine.

The long form: GYMCTL_KILLS=20 GYMCTL_KILL_ROLLOUTS=200 GYMCTL_ENGINE_RESTARTS=2 pytest
tests/docker/evaluation/test_kills.py, as root: engines are restarted in a dockerd of the test's own.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from fakes.counting import write_rows
from fakes.kills import Blow, Ordeal, counted, kill_client, kill_container, left_over, restart_engine, whole
from fakes.own_engine import own_engine
from fakes.program import gymctl

KILLS = int(os.environ.get("GYMCTL_KILLS", "3"))
ROLLOUTS = int(os.environ.get("GYMCTL_KILL_ROLLOUTS", "30"))
SEED = int(os.environ.get("GYMCTL_KILL_SEED", "20261130"))
RESTARTS = int(os.environ.get("GYMCTL_ENGINE_RESTARTS", "0"))
SLOW = "++policy_model.responses_api_models.scripted_model.faults.latency_ms=150"
"""So that what is left of a session takes longer than a blow."""
ARGUMENTS = (
    *("eval", "--resources-server", "counter", "--model-type", "scripted_model", "--runtime", "compose"),
    *("-i", "rows.jsonl", "-k", "2", "-o", "struck.jsonl", "--concurrency", "4", "--json", SLOW),
)


def drawn(seed: int) -> list[Blow]:
    draw = random.Random(f"blows {seed}")
    kinds = [kill_client, kill_container(draw), kill_container(draw, with_client=True)]
    blows = [kinds[number % len(kinds)] for number in range(KILLS)]
    draw.shuffle(blows)
    return blows


def survives(ordeal: Ordeal, blows: list[Blow]) -> None:
    ordeal.strike(blows)
    result = ordeal.finish()
    assert result["reward"] == 1.0
    for record in whole(ordeal.output):
        counted(record)
    assert left_over(ordeal.folder) == []


@pytest.mark.timeout(300 + 120 * KILLS)
def test_killed_containers_and_clients_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", ROLLOUTS // 2)
    survives(Ordeal(tmp_path, ARGUMENTS, ROLLOUTS, SEED), drawn(SEED))


@pytest.mark.timeout(600 + 60 * KILLS)
def test_an_engine_that_is_restarted_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path / "rows.jsonl", ROLLOUTS // 2)
    images = tmp_path / "images"
    images.mkdir()
    write_rows(images / "rows.jsonl", 1)
    built = gymctl(*ARGUMENTS, cwd=images)
    assert built.returncode == 0, built.stderr
    [rendered] = images.glob(".gymctl/*/compose.yaml")
    tags = set(re.findall(r"image: [\"']?(gymctl/[\w./:-]+)", rendered.read_text()))
    listed = subprocess.run(
        ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    python = {tag for tag in listed.stdout.split() if re.match(r"(gymctl-)?python:3", tag)}
    with own_engine({*tags, *python}) as engine:
        for name, value in engine.environ.items():
            monkeypatch.setenv(name, value)
        ordeal = Ordeal(tmp_path, ARGUMENTS, ROLLOUTS, SEED, prefix=engine.prefix)
        blows = drawn(SEED)
        for number in range(RESTARTS):
            blows.insert((number + 1) * len(blows) // (RESTARTS + 1), restart_engine(engine, number % 2 == 0))
        survives(ordeal, blows)


test_an_engine_that_is_restarted_loses_nothing.__test__ = bool(RESTARTS)  # type: ignore[attr-defined]
