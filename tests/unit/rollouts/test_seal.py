"""The seal: every file of a run and the passport itself, found when one byte is another."""

from __future__ import annotations

import json
from pathlib import Path

from gymctl.metrics.tally import Tally
from gymctl.paths import RunPaths
from gymctl.rollouts import history, passport, seal
from gymctl.rollouts.passport import Identity, ServerSeen, Surroundings
from gymctl.rollouts.store import RunStore

ROWS = [
    {
        "_ng_task_index": task,
        "_ng_rollout_index": 0,
        "responses_create_params": {"input": f"q{task}", "temperature": 0.5 * (task % 2), "top_p": None},
    }
    for task in range(4)
]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def made(folder: Path) -> RunStore:
    store = RunStore(RunPaths(folder / "x.jsonl"))
    identity = Identity(config={"a.b": 1}, config_text="a: {b: 1}\n", title="x")
    store.prepare(iter(ROWS), identity)
    store.note_surroundings(
        Surroundings(
            servers={"weather": ServerSeen(image="w:1", id="sha256:1", cgroup="v2", pids=5)},
            runtime="compose",
            documents={"compose.yaml": "services: {}\n"},
        )
    )
    store.begin()
    answer = {"model": "luna-4-0613", "system_fingerprint": "fp_1"}
    for row in ROWS:
        name = f"{row['_ng_task_index']}-0"
        store.sent(row, name, "e")
        await store.append({**row, "reward": 1.0, "response": answer, "gymctl_rollout_id": name})
    store.write_aggregate(b"[]")
    return store


async def test_a_run_that_ended_is_sealed_and_one_that_goes_on_is_not(tmp_path: Path) -> None:
    store = await made(tmp_path)
    found = passport.read(store.paths.passport)
    assert found is not None and found.seal is None
    assert set(found.documents) == {"inputs", "rows.sha256", "config.yaml", "compose.yaml"}
    store.seal()
    store.close()
    found = passport.read(store.paths.passport)
    assert found is not None and found.seal is not None
    assert set(found.seal.files) == {*found.documents, "rollouts", "aggregate"}
    assert found.models_returned == {"luna-4-0613": 4}
    assert found.fingerprints_returned == {"fp_1": 4}
    assert found.sampling == {"temperature": [0.0, 0.5]}
    assert found.images == {"weather": "w:1"} and found.servers["weather"].pids == 5
    assert found.machine.runtime == "compose" and found.machine.kernel
    assert seal.is_as_sealed(store.paths.passport.read_bytes())


async def test_any_byte_of_a_passport_counts(tmp_path: Path) -> None:
    store = await made(tmp_path)
    store.seal()
    raw = store.paths.passport.read_bytes()
    for position in range(0, len(raw), 7):
        changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
        assert not seal.is_as_sealed(changed), changed[max(0, position - 20) : position + 20]
    store.close()


async def test_rows_that_were_changed_are_named(tmp_path: Path) -> None:
    store = await made(tmp_path)
    store.close()
    inputs = store.paths.inputs
    lines = inputs.read_bytes().splitlines(keepends=True)
    assert seal.changed_rows(store.paths) == []
    inputs.write_bytes(b"".join([*lines[:1], lines[2].replace(b"q2", b"q7"), *lines[3:]]))
    assert seal.changed_rows(store.paths) == ["1-0", "2-0"]


async def test_a_fresh_run_takes_the_old_files_away_and_leaves_no_side_files(tmp_path: Path) -> None:
    store = await made(tmp_path)
    store.seal()
    store.close()
    again = RunStore(store.paths)
    again.prepare(iter(ROWS[:1]))
    again.begin()
    again.seal()
    again.close()
    assert names(store.paths.folder) == ["journal.jsonl", "passport.json", "rows.sha256"]
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_a_passport_of_schema_1_is_read(tmp_path: Path) -> None:
    path = tmp_path / "passport.json"
    old = {
        "schema_version": 1,
        "run": "a",
        "created": "2026-01-01",
        "rows": "0",
        "rollouts": 1,
        "repeats": 1,
        "config_digest": "c",
        "config": {},
        "settings": {},
        "files": {},
        "images": {"weather": "gymctl/resources-weather:1"},
    }
    path.write_text(json.dumps(old))
    found = passport.read(path)
    assert found is not None and found.seal is None and found.servers == {}
    assert found.images == old["images"]


async def test_a_run_that_was_killed_before_its_seal_gets_it_from_the_same_command(tmp_path: Path) -> None:
    store = await made(tmp_path)
    store.close()
    again = gone_on_with(store)
    again.seal()
    again.close()
    found = passport.read(store.paths.passport)
    assert found is not None and found.seal is not None and found.models_returned == {"luna-4-0613": 4}
    sealed = store.paths.passport.read_bytes()
    once_more = gone_on_with(store)
    once_more.seal()
    once_more.close()
    assert store.paths.passport.read_bytes() == sealed, "a seal that is there is not made anew"


async def test_lines_that_were_edited_are_not_sealed(tmp_path: Path) -> None:
    store = await made(tmp_path)
    store.close()
    rollouts = store.paths.rollouts
    rollouts.write_bytes(rollouts.read_bytes().replace(b"1.0", b"0.0", 1))
    again = gone_on_with(store)
    again.seal()
    again.close()
    found = passport.read(store.paths.passport)
    assert found is not None and found.seal is None


async def test_a_run_that_was_changed_on_purpose_is_sealed_again(tmp_path: Path) -> None:
    store = await made(tmp_path)
    store.seal()
    store.close()
    store.paths.rollouts.write_bytes(store.paths.rollouts.read_bytes() + b"{}\n")
    seal.renew(store.paths, ["gymctl", "reverify", "--append"])
    found = passport.read(store.paths.passport)
    assert found is not None and found.seal is not None
    assert found.seal.files["rollouts"] == seal.sha256(store.paths.rollouts)
    assert found.continued[-1].command == ["gymctl", "reverify", "--append"]
    assert seal.is_as_sealed(store.paths.passport.read_bytes())


def gone_on_with(store: RunStore) -> RunStore:
    """The store of a session that finds everything made."""
    found = passport.read(store.paths.passport)
    assert found is not None
    again = RunStore(store.paths)
    past = history.read(store.paths, again.policy, Tally(repeats=1), {task: 1 for task in range(4)})
    again.go_on(found, past, 0)
    return again
