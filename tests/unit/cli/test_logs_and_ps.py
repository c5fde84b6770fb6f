from __future__ import annotations

import os
from pathlib import Path

import pytest

from gymctl.cli.logs import seconds, shown
from gymctl.cli.projects import kept
from gymctl.cli.ps import _row, _since, image_text
from gymctl.errors import UsageError
from gymctl.runtime.logs import LogLine
from gymctl.runtime.stack import ServerStatus


@pytest.mark.parametrize(
    ("age", "expected"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2h", 7200), ("1m5s", 65)]
)
def test_ages_are_read_as_people_write_them(age: str, expected: float) -> None:
    assert seconds(age) == expected


@pytest.mark.parametrize("age", ["", "yesterday", "10 m", "-5", "m"])
def test_what_is_no_age_is_a_usage_error(age: str) -> None:
    with pytest.raises(UsageError):
        seconds(age)


def test_a_log_line_names_its_server_once_and_no_secret() -> None:
    line = LogLine("weather", "(weather) INFO key sk-planted-4711")
    assert shown(line, 9, {"sk-planted-4711"}) == "weather    INFO key ****"


def test_a_dead_server_shows_why_it_ended() -> None:
    dead = ServerStatus("weather", "resources_servers", "failed", "http://127.0.0.1:1", exit_code=3)
    assert _row(dead) == ("weather", "resources", "failed (exit 3)", "-", "http://127.0.0.1:1", "closed", "-")
    hungry = ServerStatus(
        "weather", "resources_servers", "failed", None, exit_code=137, was_out_of_memory=True
    )
    assert _row(hungry)[2] == "failed (out of memory)"


def test_a_project_of_which_nothing_runs_is_not_called_up() -> None:
    dead = ServerStatus("weather", "resources_servers", "failed", None, exit_code=3)
    alive = ServerStatus("head", "head", "ready", None)
    assert _since("weather-1a2b", 0.0, [dead]).startswith("nothing runs any more")
    assert _since("weather-1a2b", 0.0, [dead, alive]).startswith("up ")


def test_logs_of_several_projects_that_are_down_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "no project is up" would send people away from logs that are there."""
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(("newer", "older")):
        logs = tmp_path / ".gymctl" / name / "logs"
        logs.mkdir(parents=True)
        (logs / "desk.log").write_text("line\n")
        os.utime(logs, (1_000 - age, 1_000 - age))
    with pytest.raises(UsageError, match="several have left logs: newer, older") as caught:
        kept(None)
    assert caught.value.hint == "name one, such as the latest: --project newer"
    found = kept("older")
    assert found is not None and found.folder.name == "older"


def test_an_image_that_runs_by_digest_is_called_locked() -> None:
    assert image_text(f"sha256:9c41e07{'0' * 57}") == "9c41e07 locked"
    assert image_text("gymctl/resources-weather:0123") == "resources-weather:0123"
    assert image_text(None) == "-"
