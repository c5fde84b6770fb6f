"""The one place where an error becomes text and an exit code."""

from __future__ import annotations

import errno
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gymctl.cli import doctor, main


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Whoever ends by a signal hears none afterwards: these tests go on, and so do the ones behind them."""
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in heard.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 3), (errno.EROFS, 3), (errno.EBADF, 70)])
def test_a_disk_that_takes_nothing_is_no_bug(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise OSError(number, "the reason", "/some/file")

    monkeypatch.setattr(doctor, "command", refuse)
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor"])
    assert caught.value.code == code
    err = capsys.readouterr().err
    assert ("a bug in gymctl" in err) == (code == 70)
    assert ("a file cannot be written: the reason" in err) == (code == 3)


def test_a_disk_that_refuses_one_of_several_tasks_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        inner = ExceptionGroup("inner", [PermissionError(errno.EACCES, "the reason", "/some/file")])
        raise ExceptionGroup("tasks", [inner])

    monkeypatch.setattr(doctor, "command", refuse)
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor"])
    assert caught.value.code == 3
    assert "a file cannot be used: the reason\n  --> /some/file" in capsys.readouterr().err


def test_a_current_folder_that_is_gone_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(SystemExit) as caught:
        main.main(["config", "show", "weather"])
    assert caught.value.code == 3
    assert "the current folder is not there any more" in capsys.readouterr().err


def test_a_report_of_a_bug_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {
        "environ": "sk-4711-environ",
        "file": "sk-4711-file",
        "flag": "sk-4711-flag",
        "word": "sk-4711-word",
    }
    told = ["doctor", "--model-api-key", keys["flag"], f'++judge.judge_api_key="{keys["word"]}"']

    def fail() -> None:
        raise LookupError(f"between {list(keys.values())} and their end")

    monkeypatch.setattr(doctor, "command", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gymctl", *told])
    monkeypatch.setenv("SOME_API_KEY", keys["environ"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.yaml").write_text(f"policy_api_key: {keys['file']}\n")
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor", "--debug"])
    assert caught.value.code == 70
    (file,) = tmp_path.glob("gymctl-bug-*.txt")
    for text in (file.read_text(), capsys.readouterr().err):
        assert "LookupError: between ['****', '****', '****', '****'] and their end" in text


def test_ctrl_c_before_a_command_listens_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "command", stop)
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor"])
    assert caught.value.code == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def with_json(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The commands that have --json."""
    command = command or typer.main.get_command(main.application())
    for name, inner in getattr(command, "commands", {}).items():
        yield from with_json(inner, (*path, name))
    if any("--json" in parameter.opts for parameter in command.params):
        yield path


@pytest.mark.parametrize("command", list(with_json()), ids=" ".join)
def test_b141_json_is_json_when_the_command_is_wrong_too(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """BUG_CASES B141: an error object on stdout, the message on stderr."""
    with pytest.raises(SystemExit) as caught:
        main.main([*command, "--json", "--no-such-flag"])
    seen = capsys.readouterr()
    error = json.loads(seen.out)["error"]
    assert caught.value.code == error["exit_code"] == 2
    assert list(error) == ["what", "where", "details", "hint", "exit_code"]
    assert error["what"] in seen.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["eval", "no-such-benchmark"], 2),
        (["eval", "no-such-benchmark", "--progress", "json"], 2),
        (["metrics", "no-such-run.jsonl"], 2),
        (["compare", "a.jsonl", "b.jsonl"], 2),
        (["why", "a.jsonl"], 2),
        (["config", "check", "no-such.yaml"], 1),
        (["config", "show", "broken.yaml", "--debug"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_b141_json_is_json_when_something_is_not_there(
    arguments: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text("a: [")
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "--json"])
    seen = capsys.readouterr()
    said = json.loads(seen.out)
    assert caught.value.code == code, seen.err
    assert said.get("error", {"exit_code": code})["exit_code"] == code
    assert seen.err or said["errors"], "config check shows errors as its result"


def test_b141_a_result_is_followed_by_no_error_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a score under its floor: the result is what was asked for, and the exit code tells."""

    def shows_and_fails(json: bool = False) -> None:
        from gymctl.cli.output import Console
        from gymctl.errors import RunError

        Console().json({"reward": None})
        raise RunError("coverage is under the floor")

    monkeypatch.setattr(doctor, "command", shows_and_fails)
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor", "--json"])
    seen = capsys.readouterr()
    assert (caught.value.code, json.loads(seen.out)) == (6, {"reward": None})
    assert "coverage is under the floor" in seen.err
