"""A run is judged from its files: every rollout once, damaged lines told, the two files of the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.cli.main import main
from gymctl.contract.health import CHECKS
from gymctl.paths import RunPaths
from gymctl.rollouts import health
from gymctl.rollouts.saved import SavedRun


def row(task: int, rollout: int = 0, *, failed: bool = False, **more: Any) -> str:
    call = {"model_call_id": "c", "status_code": 500 if failed else 200, "completed_at": 1.0}
    call |= {"tokens_in": 3, "tokens_out": 2}
    return json.dumps(
        {
            "_ng_task_index": task,
            "_ng_rollout_index": rollout,
            "_ng_environment_server": "desk",
            "ng_model_call_capture": {"calls": [call]},
            **more,
        }
    )


@pytest.fixture
def run(tmp_path: Path) -> SavedRun:
    paths = RunPaths(tmp_path / "x.jsonl")
    failure = {"_ng_failure_class": "agent_run_error"}
    lines = [row(0), "{broken", row(1, failed=True), row(0), "[]", row(2)[:40]]
    paths.rollouts.write_text("\n".join(lines))  # the last one is torn
    failures = [row(1, failed=True, **failure), row(3, **failure), row(3, failed=True, **failure, n=2)]
    paths.failures.write_text("\n".join(failures) + "\n")
    return SavedRun.open(paths.rollouts)


def verdicts(run: SavedRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.paths.verdicts.read_text().splitlines()]


def test_each_rollout_has_its_verdict(run: SavedRun) -> None:
    health.check([run], run.paths)
    rows = verdicts(run)
    assert [(one["rollout_id"], one["verdict"]) for one in rows] == [
        ("0-0", "unobserved"),
        (None, "unhealthy"),
        ("1-0", "unhealthy"),
        ("0-0", "unhealthy"),
        (None, "unhealthy"),
        ("3-0", "unhealthy"),
    ]
    assert rows[1]["findings"] == [
        {"check": "record_unreadable", "message": "x.jsonl:2: JSONDecodeError", "count": 1}
    ]
    assert rows[1]["line"] == "x.jsonl:2"
    assert [one["check"] for one in rows[3]["findings"]] == ["rollout_duplicate_identity"]
    assert (rows[5]["_ng_task_index"], rows[5]["_ng_environment_server"]) == (3, "desk")
    assert [one["check"] for one in rows[5]["findings"]] == [
        *("rollout_ended_on_failed_model_call", "model_call_failed")
    ]


def test_the_summary_lies_in_the_folder_of_the_run_and_beside_it(run: SavedRun, tmp_path: Path) -> None:
    report = health.check([run], run.paths)
    told = json.loads(run.paths.health.read_text())
    assert told == report.document
    assert {check: count for check, count in told["run"]["issues"].items() if count} == {
        "record_unreadable": 2,
        "rollout_duplicate_identity": 1,
        "rollout_ended_on_failed_model_call": 2,
        "model_call_failed": 2,
        "task_no_successful_model_calls": 2,
    }
    assert told["tasks"]["0"]["repeats"] == 1, "the second line of a rollout is not one more"
    artifacts = told["run"]["artifacts"]
    assert (artifacts["records"], artifacts["captures"]) == (6, 4)
    other = SavedRun(RunPaths(tmp_path / "y.jsonl"))
    other.paths.rollouts.write_text(row(5) + "\n")
    health.check([other], other.paths)
    for name in ("quality_summary.json", "rollout_verdicts.jsonl"):
        beside = (tmp_path / name).read_bytes()
        assert beside == (tmp_path / "y" / name).read_bytes()
        assert beside != (tmp_path / "x" / name).read_bytes(), "the first run keeps its own"
    assert not list(tmp_path.glob(".*"))


def test_a_file_system_without_links_has_copies(run: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(health.os, "link", refuse)
    health.check([run], run.paths)
    assert (
        run.paths.rollouts.parent / "rollout_verdicts.jsonl"
    ).read_bytes() == run.paths.verdicts.read_bytes()


def test_ignored_checks_find_nothing(run: SavedRun) -> None:
    report = health.check([run], run.paths, CHECKS)
    assert not any(report.document["run"]["issues"].values())
    assert report.document["run"]["verdicts"] == {"healthy": 6, "unhealthy": 0, "unobserved": 0}


def test_shards_are_one_run(run: SavedRun, tmp_path: Path) -> None:
    """A success in one shard beats a failure in another; servers keep their own indices."""
    other = SavedRun(RunPaths(tmp_path / "b.jsonl"))
    other.paths.rollouts.write_text(row(0, _ng_environment_server="other") + "\n")
    other.paths.failures.write_text(row(1, _ng_failure_class="x") + "\n")
    paths = RunPaths(tmp_path / "all.jsonl")
    report = health.check([run, other], paths)
    assert report.document["run"]["artifacts"]["records"] == 7
    assert report.document["run"]["issues"]["rollout_duplicate_identity"] == 1


def test_workers_write_the_same_files(run: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    health.check([run], run.paths)
    alone = run.paths.verdicts.read_bytes(), run.paths.health.read_bytes()
    monkeypatch.setattr(health, "WORTH_WORKERS", 0)
    monkeypatch.setattr(health, "_CHUNK_BYTES", 200)
    health.check([run], run.paths, workers=2)
    assert (run.paths.verdicts.read_bytes(), run.paths.health.read_bytes()) == alone


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["health-check", *arguments])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_the_command_tells_what_was_found(run: SavedRun, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, str(run.paths.rollouts))
    assert code == 0
    assert "health      5 unhealthy (model_call_failed 2," in out
    assert "task_no_successful_model_calls          2  task 1, task 3" in out
    assert f"next: gymctl why {run.paths.rollouts} 1-0" in err
    code, out, _ = command(capsys, str(run.paths.rollouts.parent), "--rollouts-file", "x.jsonl", "--json")
    assert (code, json.loads(out)) == (0, json.loads(run.paths.health.read_text()))


def test_the_command_refuses_what_is_not_there(
    run: SavedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, told in (
        ((str(tmp_path),), "rollouts.jsonl"),
        ((str(tmp_path / "z"),), "no such file"),
        ((str(run.paths.rollouts), "--ignore", "model_call_faild"), "did you mean `model_call_failed`"),
    ):
        code, _, err = command(capsys, *arguments)
        assert (code, told in err) == (2, True), err


def test_what_the_check_cannot_write_fails_no_evaluation(
    run: SavedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gymctl.cli import eval_health
    from gymctl.cli.output import Console

    run.paths.folder.write_text("in the way")
    assert eval_health.checked([run], run.paths, (), None, Console()) is None
    assert "warning: the health of the rollouts was not checked: File exists" in capsys.readouterr().err
