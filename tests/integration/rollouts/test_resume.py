"""A run that is gone on with: what is owed is made, what is done is kept, something else is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymctl.contract.rollout import Row
from gymctl.errors import RunError
from gymctl.rollouts.attempts import AttemptPolicy
from gymctl.rollouts.resume import ResumeOptions
from gymctl.rollouts.store import RunStore
from gymctl.transport import TAKEN_BACK_HEADER

from .conftest import Bench, FakeEnvironment, scored

Start = Callable[..., Awaitable[FakeEnvironment]]
Make = Callable[..., Bench]


async def by_number(row: Row, request: web.Request) -> web.Response:
    """Rewards whose sum depends on the order of addition, if it is not exact."""
    return scored(1 / (row["n"] + 3), reply=f"text of {row['n']}\u2028\x85\f and on")


def dropping(bench: Bench, numbers: set[int]) -> None:
    """Take lines out of a finished run's rollouts, as if they had never been made."""
    path = bench.run.paths.rollouts
    kept = [
        line
        for line in path.read_bytes().split(b"\n")[:-1]
        if json.loads(line)["_ng_task_index"] not in numbers
    ]
    path.write_bytes(b"".join(line + b"\n" for line in kept))


async def test_only_what_is_owed_is_sent_and_the_score_is_that_of_one_run(
    environment: Start, bench: Make
) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 9)
    await first.collect()
    whole = first.run.tally.headline()
    dropping(first, {2, 5})
    fake.bodies.clear()
    second = bench(fake.url, 9)
    assert (second.run.owed, second.run.kept) == (2, 7)
    await second.collect()
    assert sorted(row["n"] for row in fake.bodies) == [2, 5]
    assert second.run.tally.headline() == whole
    assert len(second.records("rollouts")) == 9
    assert second.run.store.passport is not None
    assert len(second.run.store.passport.continued) == 1


async def test_b98_text_with_other_separators_is_one_line(environment: Start, bench: Make) -> None:
    fake = await environment(by_number)
    await bench(fake.url, 3).collect()
    again = bench(fake.url, 3)
    again.run.close()
    assert again.run.is_done
    assert [record["reply"][:9] for record in again.run.store.records()] == [
        "text of 0",
        "text of 1",
        "text of 2",
    ]


async def test_b104_a_complete_run_sends_nothing_and_computes_missing_metrics(
    environment: Start, bench: Make
) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 4)
    await first.collect()
    before = first.run.paths.aggregate.read_bytes()
    first.run.paths.aggregate.unlink()
    fake.bodies.clear()
    second = bench(fake.url, 4)
    assert second.run.is_done
    assert not second.run.has_aggregate
    await second.collect()
    assert fake.bodies == []
    assert second.run.paths.aggregate.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 40])
async def test_a_torn_last_line_is_dropped_with_a_note_and_made_again(
    environment: Start, bench: Make, cut: int
) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 3, concurrency=1)
    await first.collect()
    path = first.run.paths.rollouts
    path.write_bytes(path.read_bytes()[:-cut])
    second = bench(fake.url, 3)
    if cut == 1:  # a whole line that lacks its newline
        assert (second.run.owed, second.run.notes) == (0, ())
    else:
        assert second.run.owed == 1
        assert "cut off half written" in second.run.notes[0]
    await second.collect()
    assert sorted(record["_ng_task_index"] for record in second.records("rollouts")) == [0, 1, 2]


def in_a_world_that_began(monkeypatch: pytest.MonkeyPatch, at: float) -> None:
    """The servers behind the fake environment are only names."""

    async def youngest(*_: object) -> float:
        return at

    monkeypatch.setattr("gymctl.rollouts.run.youngest", youngest)


@pytest.mark.parametrize("is_same_world", [True, False])
async def test_an_attempt_in_flight_is_sent_again_under_its_key_unless_a_server_was_started_anew(
    environment: Start, bench: Make, monkeypatch: pytest.MonkeyPatch, is_same_world: bool
) -> None:
    in_a_world_that_began(monkeypatch, 0.0 if is_same_world else time.time() + 3600)
    fake = await environment(by_number)
    first = bench(fake.url, 2, concurrency=1)
    await first.collect()
    keys = dict(zip((row["n"] for row in fake.bodies), fake.keys, strict=True))
    dropping(first, {1})
    journal = first.run.paths.journal
    events = [line for line in journal.read_bytes().split(b"\n") if b'"ended","rollout":"1-0"' not in line]
    journal.write_bytes(b"\n".join(events) + b'{"event":"se')
    second = bench(fake.url, 2)
    assert "1 in flight" in second.run.notes[0]
    await second.collect()
    assert (fake.keys[-1] == keys[1]) is is_same_world


async def test_a_rollout_that_was_altered_is_named(environment: Start, bench: Make) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 3)
    await first.collect()
    untouched = bench(fake.url, 3)
    untouched.run.close()
    assert untouched.run.notes == ()
    path = first.run.paths.rollouts
    path.write_bytes(path.read_bytes().replace(b'"reply":"text of 1', b'"reply":"text of 7'))
    second = bench(fake.url, 3)
    second.run.close()
    assert second.run.notes == ("1 rollout is not as this run wrote it: 1-0; --fresh makes all again",)


async def test_an_attempt_that_the_server_has_given_up_is_made_anew_and_costs_no_failure(
    environment: Start, bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed too late: the server has cancelled what nobody asked for, and says so to a repeat."""
    in_a_world_that_began(monkeypatch, 0.0)
    given_up: set[str | None] = set()

    async def forgetting(row: Row, request: web.Request) -> web.Response:
        if request.headers.get("Idempotency-Key") in given_up:
            return web.json_response("TakenBack('…')", status=500, headers={TAKEN_BACK_HEADER: "1"})
        return await by_number(row, request)

    fake = await environment(forgetting)
    first = bench(fake.url, 2, concurrency=1)
    await first.collect()
    given_up.update(fake.keys)
    dropping(first, {1})
    journal = first.run.paths.journal
    events = [line for line in journal.read_bytes().split(b"\n") if b'"ended","rollout":"1-0"' not in line]
    journal.write_bytes(b"\n".join(events))
    second = bench(fake.url, 2)
    await second.collect()
    assert [row["n"] for row in fake.bodies][2:] == [1, 1]
    assert fake.keys[2] in given_up
    assert fake.keys[3] not in given_up
    assert second.records("failures") == []
    assert second.run.tally.headline().coverage == 1.0
    third = bench(fake.url, 2)
    third.run.close()
    assert third.run.is_done
    assert third.run.notes == ()


async def test_failures_are_tried_again_up_to_the_cap_and_terminal_ones_never(
    environment: Start, bench: Make
) -> None:
    async def script(row: Row, request: web.Request) -> web.Response:
        if row["n"] == 0:
            return scored(1.0)
        failure = {"_ng_failure_class": "timeout_exceeded", "_ng_failure_terminal": row["n"] == 2}
        return web.json_response({**failure, "reuse_cached_deliverable": row["n"] == 1})

    fake = await environment(script)
    for session in range(5):
        made = bench(fake.url, 3)
        assert made.run.owed == (3 if session == 0 else 1 if session < 3 else 0)
        await made.collect(and_aggregate=False)
        assert made.run.tally.failed.total() == 2
        assert made.run.still_owed == (1 if session < 2 else 0)
    attempts = [
        (row["n"], row.get("_ng_attempt_index"), row.get("reuse_cached_deliverable")) for row in fake.bodies
    ]
    assert [attempt for attempt in attempts if attempt[0] == 1] == [
        (1, None, None),
        (1, 1, True),
        (1, 2, True),
    ]
    assert [attempt for attempt in attempts if attempt[0] == 2] == [(2, None, None)]
    assert len(set(fake.keys)) == len(fake.keys)
    retried = bench(
        fake.url, 3, resume=ResumeOptions(policy=AttemptPolicy(9, retries_terminal_timeouts=True))
    )
    assert retried.run.owed == 2
    retried.run.close()


async def test_what_failed_before_and_is_not_reached_stays_failed(environment: Start, bench: Make) -> None:
    async def script(row: Row, request: web.Request) -> web.Response:
        return web.json_response({}, status=500)

    fake = await environment(script)
    await bench(fake.url, 4).collect(and_aggregate=False)
    second = bench(fake.url, 4)
    second.drain.set()
    await second.collect(and_aggregate=False)
    assert (second.run.tally.failed.total(), second.run.tally.not_run, second.run.still_owed) == (4, 0, 4)


async def test_invalid_judgements_leave_the_rollouts_when_asked(environment: Start, bench: Make) -> None:
    async def script(row: Row, request: web.Request) -> web.Response:
        return scored(
            0.0,
            **(
                {"invalid_judge_response": True} if row["n"] == 1 and not row.get("_ng_attempt_index") else {}
            ),
        )

    fake = await environment(script)
    await bench(fake.url, 3).collect(and_aggregate=False)
    assert bench_owed(bench(fake.url, 3)) == 0
    asked = ResumeOptions(retries_invalid_judgements=True)
    second = bench(fake.url, 3, resume=asked)
    assert second.run.owed == 1
    await second.collect(and_aggregate=False)
    [failure] = second.records("failures")
    assert (failure["_ng_failure_class"], failure["_ng_task_index"]) == ("judge_invalid", 1)
    assert sorted(record.get("_ng_attempt_index", 0) for record in second.records("rollouts")) == [0, 0, 1]
    assert bench_owed(bench(fake.url, 3, resume=asked)) == 0


def bench_owed(made: Bench) -> int:
    made.run.close()
    return made.run.owed


async def test_the_slowest_go_first_when_asked(environment: Start, bench: Make) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 3, repeats=2, concurrency=1)
    await first.collect(and_aggregate=False)
    path = first.run.paths.rollouts
    records: list[dict[str, Any]] = first.records("rollouts")
    for record in records:
        record["gymctl_outcome"]["seconds"] = record["_ng_task_index"]
    kept = [record for record in records if record["_ng_rollout_index"] == 0]
    path.write_text("".join(json.dumps(record) + "\n" for record in kept))
    fake.bodies.clear()
    asked = ResumeOptions(is_longest_first=True)
    await bench(fake.url, 3, repeats=2, concurrency=1, resume=asked).collect(and_aggregate=False)
    assert [row["n"] for row in fake.bodies] == [2, 1, 0]


async def test_b103_other_rows_are_refused_and_nothing_is_touched(environment: Start, bench: Make) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 3)
    await first.collect()
    folder = first.run.paths.rollouts.parent
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(RunError, match="made with something else") as caught:
        bench(fake.url, 4)
    assert caught.value.exit_code == 6
    assert "--fresh" in (caught.value.hint or "")
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    going_on = bench(fake.url, 4, resume=ResumeOptions(goes_on_anyway=True))
    assert (going_on.run.owed, going_on.run.summary.rollouts) == (0, 3)
    going_on.run.close()
    assert bench_owed(bench(fake.url, 4, resume=ResumeOptions(is_fresh=True))) == 4


async def test_b102_results_without_a_passport_are_neither_mixed_nor_deleted(
    environment: Start, bench: Make
) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 3)
    await first.collect(and_aggregate=False)
    first.run.paths.passport.write_bytes(b"")
    with pytest.raises(RunError, match="nothing says what they were made with"):
        bench(fake.url, 3)
    assert len(first.records("rollouts")) == 3
    dropping(first, {0})
    asked = ResumeOptions(is_asked=True)
    adopted = bench(fake.url, 3, resume=asked)
    assert adopted.run.owed == 1
    await adopted.collect(and_aggregate=False)
    adopted.run.paths.passport.unlink()
    adopted.run.paths.inputs.unlink()
    with pytest.raises(RunError, match="nothing says"):
        bench(fake.url, 3)
    assert bench_owed(bench(fake.url, 3, resume=asked)) == 3


async def test_rows_whose_file_is_gone_are_in_the_inputs(
    environment: Start, bench: Make, tmp_path: Path
) -> None:
    fake = await environment(by_number)
    first = bench(fake.url, 3)
    await first.collect(and_aggregate=False)
    dropping(first, {1})
    request = first.run.request
    (tmp_path / "rows.jsonl").unlink()
    again = type(first.run).prepare(request, first.table)
    assert again.owed == 1
    assert "the files of the rows are gone" in again.notes[0]
    again.close()


def test_inputs_that_were_edited_are_refused(tmp_path: Path, bench: Make) -> None:
    made = bench("http://127.0.0.1:1", 2)
    assert isinstance(made.run.store, RunStore)
    made.run.store.begin()
    made.run.close()
    inputs = made.run.paths.inputs
    inputs.write_bytes(inputs.read_bytes().replace(b'"n":1', b'"n":7'))
    with pytest.raises(RunError, match="something else") as caught:
        bench("http://127.0.0.1:1", 2)
    assert caught.value.where == str(inputs)
