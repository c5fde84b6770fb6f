"""`gymctl eval` end to end with local processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import evaluations
from fakes.program import processes_below


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A user's folder; afterwards none of its processes may be left."""
    yield tmp_path
    assert processes_below(tmp_path) == []


def test_64_sessions_at_once_stay_apart(folder: Path) -> None:
    evaluations.sessions_stay_apart(folder, "process")


def test_the_scripted_benchmark_has_its_known_score(folder: Path) -> None:
    evaluations.scripted_weather_is_scored(folder, "process")


def test_15_1_model_calls_are_on_record(folder: Path) -> None:
    evaluations.model_calls_are_on_record(folder, "process")


def test_9_10_unhealthy_rollouts_are_told(folder: Path) -> None:
    evaluations.unhealthy_rollouts_are_told(folder, "process")


def test_another_agent_runs_the_benchmark(folder: Path) -> None:
    evaluations.another_agent_takes_the_place(folder, "process")


def test_a_step_style_environment_is_played(folder: Path) -> None:
    evaluations.blackjack_is_played(folder, "process")


def test_an_episode_without_an_end_is_truncated(folder: Path) -> None:
    evaluations.unfinished_blackjack_is_truncated(folder, "process")


def test_a_real_small_model_is_evaluated(folder: Path) -> None:
    evaluations.small_model_is_evaluated(folder, "process")


def test_the_small_model_is_replayed_from_its_cassette(folder: Path) -> None:
    evaluations.small_model_is_replayed(folder, "process")


def test_eval_uses_a_project_that_is_up(folder: Path) -> None:
    evaluations.running_project_is_used(folder, "process")


def test_ps_shows_the_servers_of_an_evaluation_under_way(folder: Path) -> None:
    evaluations.servers_are_seen_while_it_runs(folder, "process")
