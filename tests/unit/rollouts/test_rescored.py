"""The passport of scores made again: sealed, of the answers of another run, and compared by what it tells."""

from __future__ import annotations

import json
from pathlib import Path

from gymctl.paths import RunPaths
from gymctl.rollouts import differences, passport, rescored, seal
from gymctl.rollouts.passport import Identity, Passport, ServerSeen, Surroundings
from gymctl.rollouts.reverified import Existing, ReverifiedFiles
from gymctl.rollouts.saved import SavedRun
from gymctl.rollouts.store import RunStore

ROWS = [
    {"_ng_task_index": task, "_ng_rollout_index": 0, "responses_create_params": {"input": f"q{task}"}}
    for task in range(2)
]


def lock(digit: str) -> str:
    image = {
        "name": "resources_servers/w",
        "platform": "linux/amd64",
        "context": "c",
        "id": f"sha256:{digit}",
    }
    return json.dumps({"images": [image]})


def seen(digit: str) -> Surroundings:
    documents = {"compose.yaml": "services: {}\n", "images.lock.json": lock(digit)}
    servers = {"w": ServerSeen(image="w:1", id=f"sha256:{digit}")}
    return Surroundings(servers=servers, runtime="compose", documents=documents)


async def evaluated(folder: Path, name: str = "x.jsonl") -> SavedRun:
    store = RunStore(RunPaths(folder / name))
    config = {"w.a": 1, "agent.b": 2}
    store.prepare(iter(ROWS), Identity(config=config, limits={"--memory": "1g"}))
    servers = {"w": ServerSeen(image="w:1", id="sha256:1"), "agent": ServerSeen(image="a:1", id="sha256:9")}
    store.note_surroundings(Surroundings(servers=servers, runtime="compose"))
    store.begin()
    for row in ROWS:
        key = f"{row['_ng_task_index']}-0"
        store.sent(row, key, "e")
        await store.append({**row, "reward": 0.0, "response": {"model": "m"}, "gymctl_rollout_id": key})
    store.seal()
    store.close()
    return SavedRun.open(folder / name)


def scored(
    run: SavedRun, existing: Existing, digit: str, *tasks: int, w: int = 1
) -> tuple[Passport, list[str]]:
    """Scores of these tasks, and what a user is told."""
    identity = Identity(config={"w.a": w}, config_text="w: {}\n", command=("gymctl", "reverify"))
    with ReverifiedFiles(run, run.paths.rollouts.with_name("y.jsonl"), existing) as files:
        told = rescored.begin(run, files.paths, identity, seen(digit))
        for task in tasks:
            files.write({**ROWS[task], "reward": 1.0, "response": {"model": "m"}})
    rescored.close(run, files.paths)
    found = passport.read(files.paths.passport)
    assert found is not None
    assert seal.is_as_sealed(files.paths.passport.read_bytes())
    return found, list(told)


async def test_they_are_sealed_and_say_whose_answers_they_score(tmp_path: Path) -> None:
    run = await evaluated(tmp_path)
    found, told = scored(run, Existing.REFUSE, "1", 0, 1)
    old = passport.read(run.paths.passport)
    assert old is not None and found.seal is not None and told == []
    assert found.scores_run == {"run": old.run, "output": str(run.paths.rollouts)}
    assert (found.rows, found.rollouts, found.models_returned) == (old.rows, 2, {"m": 2})
    begun = {"inputs", "rows.sha256", "config.yaml", "compose.yaml", "images.lock.json"}
    assert set(found.seal.files) == {*begun, "rollouts"}
    assert set(found.documents) == begun
    assert differences.between(old, found) == [], "what only the evaluation had is no difference"


async def test_what_is_gone_on_with_keeps_its_lock_and_notes_other_images(tmp_path: Path) -> None:
    run = await evaluated(tmp_path)
    first, _ = scored(run, Existing.REFUSE, "1", 0)
    assert first.seal is not None and first.seal.owed == 1
    found, told = scored(run, Existing.RESUME, "2", 1, w=2)
    assert told == ["image resources_servers/w: sha256:1 → sha256:2"]
    assert found.continued[0].in_spite_of == ["w.a: 1 → 2", *told]
    assert found.seal is not None and found.seal.owed == 0
    paths = RunPaths(tmp_path / "y.jsonl")
    assert paths.lock.read_text() == lock("1")


async def test_nothing_of_another_run_stays_where_scores_are_made_anew(tmp_path: Path) -> None:
    run = await evaluated(tmp_path)
    paths = RunPaths(tmp_path / "y.jsonl")
    scored(run, Existing.REFUSE, "1", 0)
    paths.inputs.write_text('{"_ng_task_index": 7, "_ng_rollout_index": 0}\n')
    found, told = scored(run, Existing.OVERWRITE, "2", 0, 1)
    assert (found.continued, told) == ([], [])
    assert paths.lock.read_text() == lock("2")
    assert paths.inputs.read_bytes() == run.paths.inputs.read_bytes()
