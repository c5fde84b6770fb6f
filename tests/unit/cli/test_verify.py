"""`gymctl verify RUN`: whatever one byte is changed in is named, and what is only elsewhere is no failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gymctl.cli import verify_inputs
from gymctl.cli.identity import CODE, CONTENT, SDK, prompt_digest
from gymctl.cli.main import main
from gymctl.cli.passport_text import rows
from gymctl.images.context import sdk_context, server_context
from gymctl.paths import RunPaths
from gymctl.rollouts import passport, seal
from gymctl.rollouts.passport import Identity, ServerSeen, Surroundings
from gymctl.rollouts.prompts import Prompt
from gymctl.rollouts.store import RunStore

ID = f"sha256:{'1' * 64}"
TAG = "gymctl/resources-weather:abc"
ROWS = [{"_ng_task_index": task, "_ng_rollout_index": 0, "question": f"q{task}"} for task in range(3)]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Reference -> id of the images of an engine that answers."""
    images = {TAG: ID, ID: ID}
    monkeypatch.setattr(
        verify_inputs, "_engine", lambda _: lambda name: {images[name]} if name in images else set()
    )
    return images


def identity(folder: Path) -> Identity:
    (folder / "weather").mkdir()
    for name, text in (
        ("rows.jsonl", '{"question": "q"}\n'),
        ("prompt.yaml", 'user: "Say {question}"\n'),
        ("weather/app.py", "print(1)\n"),
        ("run.cassette", '{"entry": 1}\n'),
    ):
        (folder / name).write_text(text)
    rows, prompt, tape = (folder / name for name in ("rows.jsonl", "prompt.yaml", "run.cassette"))
    return Identity(
        config={
            "weather.pids": 5,
            f"weather{CODE}": f"sha256:{server_context(folder / 'weather').digest()}",
            f"policy.file{CONTENT}": seal.sha256(tape),
            SDK: f"sha256:{sdk_context().digest()}",
        },
        files={"rows.jsonl": seal.sha256(rows), "p": prompt_digest(Prompt.read(prompt))},
        prompts=["p"],
        places={
            "rows.jsonl": str(rows),
            "p": str(prompt),
            f"weather{CODE}": str(folder / "weather"),
            f"policy.file{CONTENT}": str(tape),
        },
        config_text="weather: {pids: 5}\n",
        command=["gymctl", "eval", "weather"],
        title="weather",
    )


async def made(folder: Path, *, is_sealed: bool = True) -> RunPaths:
    store = RunStore(RunPaths(folder / "out" / "x.jsonl"))
    store.prepare(iter(ROWS), identity(folder))
    documents = {"compose.yaml": "services: {}\n", "images.lock.json": '{"images": []}\n'}
    servers = {"weather": ServerSeen(image=TAG, id=ID, cgroup="v2", pids=5)}
    store.note_surroundings(Surroundings(servers, runtime="compose", documents=documents))
    store.begin()
    for row in ROWS:
        store.sent(row, f"{row['_ng_task_index']}-0", "e")
        failed = {"_ng_failure_class": "x"} if row["_ng_task_index"] == 2 else {"reward": 1.0}
        await store.append({**row, **failed, "gymctl_rollout_id": f"{row['_ng_task_index']}-0"})
    store.write_aggregate(b'[{"mean": 1}]')
    if is_sealed:
        store.seal()
    store.close()
    return store.paths


def verify(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str], str]:
    """Exit code, status by ingredient, what stderr says."""
    with pytest.raises(SystemExit) as ended:
        main(["verify", *arguments, "--json"])
    told = capsys.readouterr()
    document = json.loads(told.out)
    found = {one["name"]: one["status"] for one in document.get("findings", ())}
    return int(ended.value.code or 0), found, told.err


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


INGREDIENTS: dict[str, tuple[Callable[[RunPaths, Path], Path], bytes]] = {
    "passport": (lambda paths, _: paths.passport, b"T"),
    "inputs": (lambda paths, _: paths.inputs, b"q1"),
    "rows": (lambda paths, _: paths.inputs, b"q2"),
    "rollouts": (lambda paths, _: paths.rollouts, b"1.0"),
    "failures": (lambda paths, _: paths.failures, b"q2"),
    "aggregate": (lambda paths, _: paths.aggregate, b"mean"),
    "rows.sha256": (lambda paths, _: paths.rows, b"  0-0"),
    "config.yaml": (lambda paths, _: paths.config, b"5"),
    "compose.yaml": (lambda paths, _: paths.compose, b"serv"),
    "images.lock.json": (lambda paths, _: paths.lock, b"images"),
    "file rows.jsonl": (lambda _, folder: folder / "rows.jsonl", b"question"),
    "prompt p": (lambda _, folder: folder / "prompt.yaml", b"Say"),
    "code weather": (lambda _, folder: folder / "weather" / "app.py", b"1"),
    "file policy.file": (lambda _, folder: folder / "run.cassette", b"1"),
}


async def test_an_untouched_run_is_ok_to_the_last_ingredient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    await made(tmp_path)
    code, found, said = verify(capsys, str(tmp_path / "out" / "x.jsonl"), "--strict")
    assert code == 0, said
    assert set(INGREDIENTS) | {"image weather", "code gymctl", "seal", "versions", "machine"} == set(found)
    assert set(found.values()) == {"ok"}
    assert verify(capsys, str(tmp_path / "out" / "x"))[0] == 0, "a run's folder names it, too"


@pytest.mark.parametrize("name", INGREDIENTS)
async def test_one_byte_is_found_and_its_ingredient_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str], name: str
) -> None:
    paths = await made(tmp_path)
    where, text = INGREDIENTS[name]
    path = where(paths, tmp_path)
    flip(path, path.read_bytes().index(text))
    code, found, said = verify(capsys, str(paths.rollouts))
    assert code == 9
    assert found[name] == "differs"
    assert f"{name}: differs" in said
    expected = {name, "inputs", "rows"} if name in ("inputs", "rows") else {name}
    if name == "rows.sha256":
        expected |= {"rows"}
    assert {one for one, status in found.items() if status == "differs"} == expected


async def test_rows_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    paths = await made(tmp_path)
    flip(paths.inputs, paths.inputs.read_bytes().index(b"q1"))
    assert "rows: differs, 1-0" in verify(capsys, str(paths.rollouts))[2]


async def test_an_image_under_the_same_tag_is_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    paths = await made(tmp_path)
    engine.clear()
    code, found, _ = verify(capsys, str(paths.rollouts))
    assert (code, found["image weather"]) == (0, "gone")
    assert verify(capsys, str(paths.rollouts), "--strict")[0] == 9
    engine[TAG] = f"sha256:{'2' * 64}"
    code, found, said = verify(capsys, str(paths.rollouts))
    assert (code, found["image weather"]) == (9, "differs")
    assert "expected sha256:111111111111, found sha256:222222222222" in said


async def test_what_is_not_on_this_machine_is_gone_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    paths = await made(tmp_path)
    (tmp_path / "rows.jsonl").unlink()
    (tmp_path / "weather" / "app.py").unlink()
    (tmp_path / "weather").rmdir()
    code, found, _ = verify(capsys, str(paths.rollouts))
    assert code == 0
    assert {name for name, status in found.items() if status == "gone"} == {"file rows.jsonl", "code weather"}
    paths.failures.unlink()
    code, found, _ = verify(capsys, str(paths.rollouts))
    assert (code, found["failures"]) == (9, "differs"), "a run's own files belong to it"


async def test_a_killed_run_has_no_seal_and_what_can_be_checked_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    paths = await made(tmp_path, is_sealed=False)
    code, found, _ = verify(capsys, str(paths.rollouts))
    assert code == 0
    assert (found["seal"], found["passport"], found["rollouts"]) == ("not recorded", "ok", "ok")
    with pytest.raises(SystemExit):
        main(["verify", str(paths.rollouts)])
    assert "not finished: it runs, or it was killed" in capsys.readouterr().out
    for path, text, name in (
        (paths.rollouts, b"1.0", "rollouts"),
        (paths.config, b"5", "config.yaml"),
        (paths.passport, b" ", "passport"),
    ):
        before = path.read_bytes()
        flip(path, before.index(text))
        code, found, _ = verify(capsys, str(paths.rollouts))
        assert (code, found[name]) == (9, "differs"), name
        path.write_bytes(before)


async def test_a_run_of_schema_1_tells_what_it_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    paths = await made(tmp_path)
    told = json.loads(paths.passport.read_text())
    kept = ("run", "created", "title", "command", "gymctl", "python", "rows", "rollouts", "repeats", "files")
    old = {key: told[key] for key in (*kept, "config_digest", "config", "settings", "images")}
    paths.passport.write_text(json.dumps({"schema_version": 1, **old}))
    code, found, _ = verify(capsys, str(paths.rollouts))
    assert (code, found["passport"], found["rows"]) == (0, "not recorded", "ok")
    flip(paths.inputs, paths.inputs.read_bytes().index(b"q1"))
    assert verify(capsys, str(paths.rollouts))[0] == 9


async def test_without_a_passport_nothing_can_be_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    paths = await made(tmp_path)
    paths.passport.write_bytes(b"{")
    code, found, _ = verify(capsys, str(paths.rollouts))
    assert (code, found) == (9, {"passport": "differs"})
    paths.passport.unlink()
    code, found, said = verify(capsys, str(paths.rollouts))
    assert code == 9 and "has no passport" in said


async def test_show_and_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: dict[str, str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, other = await made(tmp_path / "a"), await made(tmp_path / "b")
    with pytest.raises(SystemExit):
        main(["passport", "show", str(one.rollouts)])
    shown = capsys.readouterr().out
    for text in (
        "weather",
        "not returned",
        "5 pids (cgroup v2)",
        f"weather  111111111111  {TAG}",
        "gymctl eval weather",
    ):
        assert text in shown
    assert ID[7:] not in shown
    sealed = passport.read(one.passport)
    assert sealed is not None
    locked = {"w": ServerSeen(image=ID, id=ID, profile="closed")}
    texts = [text for _, text in rows(sealed.model_copy(update={"servers": locked}))]
    assert "w     111111111111  closed   limits not known" in texts
    told = passport.read(other.passport)
    assert told is not None
    changed = {"weather": ServerSeen(image=TAG, id=f"sha256:{'3' * 64}", cgroup="v2", pids=7)}
    config = {**told.config, "weather.pids": 7}
    update = {"servers": changed, "config": config, "models_returned": {"luna": 1}}
    passport.write(other.passport, told.model_copy(update=update))
    with pytest.raises(SystemExit):
        main(["passport", "diff", str(one.rollouts), str(other.rollouts), "--json"])
    found = json.loads(capsys.readouterr().out)["differs"]
    assert [(each["kind"], each["key"]) for each in found] == [
        ("image", "weather"),
        ("config", "weather.pids"),
        ("in force", "weather.pids"),
    ]
