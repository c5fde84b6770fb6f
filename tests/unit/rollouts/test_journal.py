"""The journal of a run: which attempts were in flight, and under which key each is sent again."""

from __future__ import annotations

from pathlib import Path

from gymctl.rollouts import journal
from gymctl.rollouts.journal import Journal


def row(task: int) -> dict[str, int]:
    return {"_ng_task_index": task, "_ng_rollout_index": 0}


def opened(path: Path) -> Journal:
    return Journal(path, "run", journal.read(path))


def session(path: Path, *sent: int, ended: tuple[int, ...] = ()) -> None:
    made = opened(path)
    for task in sent:
        made.sent(row(task), f"{task}-0", "env")
    for task in ended:
        made.ended(f"{task}-0", "rollouts", 7)
    made.close()


def test_an_attempt_in_flight_keeps_its_key(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    session(path, 1, 2, ended=(1,))
    again = opened(path)
    assert again.has_in_flight
    assert again.key("2-0") == "run:2-0"


def test_in_a_world_that_began_later_it_gets_another_one_for_good(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    session(path, 1, 2, ended=(1,))
    [(_, at)] = journal.read(path).in_flight.items()
    again = opened(path)
    again.give_up(at - 1)
    assert again.key("2-0") == "run:2-0"
    again.give_up(at + 1)
    assert (again.key("1-0"), again.key("2-0")) == ("run:1-0", "run:2-0:1")
    again.close()
    assert not journal.read(path).in_flight
    assert opened(path).key("2-0") == "run:2-0:1"
