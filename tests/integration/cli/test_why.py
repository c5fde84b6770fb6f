"""`gymctl why` as it is typed, and `--up` after starts that really failed."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from fakes import runs
from fakes.evaluations import REPO
from fakes.program import own_head

from gymctl.cli import why_up
from gymctl.cli.main import main
from gymctl.errors import EngineError, PrerequisiteError, ServerError
from gymctl.paths import ProjectPaths
from gymctl.runtime import failure


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_without_failures_says_so(here, capsys) -> None:
    assert run("why", runs.write(here, "x", {0: [1.0, 0.0]})) == 0
    assert capsys.readouterr().out == "all 2 rollouts have a score\n"


def test_the_groups_of_one_class_and_the_next_command(here, capsys) -> None:
    bad = {
        "_ng_task_index": 5,
        "_ng_rollout_index": 0,
        "_ng_failure_class": "agent_run_error",
        "_ng_failure_http_status": 422,
    }
    path = runs.write(here, "x", {0: [1.0, None], 1: [None]}, failures=[bad])
    assert run("why", path, "--class", "bug") == 0
    out, err = capsys.readouterr()
    assert out.startswith("1 cause left 1 of 4 rollouts without a score\n\n1  bug")
    assert err == f"next: gymctl why {path} 5-0\n"
    assert run("why", path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(group["class"], group["count"]) for group in found["groups"]] == [
        ("infrastructure", 2),
        ("bug", 1),
    ]
    assert run("why", path, "5-0") == 0
    assert "rollout 5-0 · 1 attempt" in capsys.readouterr().out


def test_usage(here) -> None:
    path = runs.write(here, "x", {0: [None]})
    assert run("why", path, "--class", "mine") == 2
    assert run("why", path, "9-9") == 2
    assert run("why", path, "nonsense") == 2
    assert run("why", "gone.jsonl") == 2
    assert run("why", path, "0-0", "--up") == 2
    assert run("why", "--up") == 2, "nothing has failed here"


def test_a_port_that_is_taken_is_told_by_why_up_and_forgotten_after_a_start(here, capsys) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        start = ["up", "weather", "--model-type", "scripted_model", "--runtime", "process", "-d"]
        assert run(*start, f"++head_server.port={port}") == 3
    capsys.readouterr()
    assert run("why", "--up") == 0
    out = capsys.readouterr().out
    assert out.startswith("infrastructure · head · port taken")
    assert f"port {port}" in out
    assert "   fix    " in out
    assert run("why", "--up", "--json") == 0
    told = json.loads(capsys.readouterr().out)["start"]
    assert (told["class"], told["server"], told["cause"], told["exit_code"]) == (
        "infrastructure",
        "head",
        "port taken",
        3,
    )
    (paths,) = [ProjectPaths(path.parent) for path in Path(".gymctl").glob("*/failure.json")]
    with failure.remembered(paths):
        pass
    assert failure.recall(paths) is None


STATION = """
from pydantic import field_validator
from gymctl.servers import ResourcesConfig


class Config(ResourcesConfig):
    station: str

    @field_validator("station")
    @classmethod
    def known(cls, station: str) -> str:
        if station != "Oslo":
            raise ValueError(f"there is no station {station}")
        return station
"""
IN_ROME = "++weather.resources_servers.weather.station=Rome"


@pytest.mark.parametrize(
    ("line", "more", "cause", "words"),
    [
        (
            "import geopy_that_is_not_there",
            (),
            "package missing",
            "No module named 'geopy_that_is_not_there'",
        ),
        ("raise SystemExit('the field `city` has no such station')", (), "stopped", "no such station"),
        ("raise SystemExit('cannot pull the image of the sky')", (), "stopped", "image of the sky"),
        (STATION, (IN_ROME,), "wrong configuration", "`station`: Value error, there is no station Rome"),
    ],
)
def test_a_server_that_really_ends_before_it_is_ready_is_told_with_its_last_words(
    here, capsys, line, more, cause, words
) -> None:
    weather = "resources_servers/weather"
    shutil.copytree(REPO / "server_images" / weather, here / weather)
    app = here / weather / "app.py"
    app.write_text(_with(app, line))
    start = ("up", "weather", "--search-dir", ".", "--model-type", "scripted_model", "-d", own_head())
    assert run(*start, "--runtime", "process", *more) == 5
    capsys.readouterr()
    assert run("why", "--up", "--json") == 0
    told = json.loads(capsys.readouterr().out)["start"]
    assert (told["server"], told["cause"]) == ("weather", cause)
    assert words in "\n".join(told["lines"])


def _with(app: Path, line: str) -> str:
    """The server's file with a line after its first imports from the future."""
    text = app.read_text()
    future = "from __future__ import annotations\n"
    assert future in text
    if "class Config" in line:
        text = text.replace(
            '    reverify_mode = "stateless"', '    config: Config\n    reverify_mode = "stateless"'
        )
        assert "config: Config" in text
    return text.replace(future, f"{future}\n{line}\n", 1)


@pytest.mark.parametrize(
    ("error", "server", "cause"),
    [
        (
            ServerError(
                "`weather` stopped before it was ready (out of memory after 2.1 s)", hint="give it more"
            ),
            "weather",
            "out of memory",
        ),
        (
            ServerError(
                "`weather` stopped before it was ready (exit 1 after 2.1 s)",
                details=["last lines of weather:", "  ModuleNotFoundError: No module named 'geopy'"],
            ),
            "weather",
            "package missing",
        ),
        (ServerError("`weather` stopped before it was ready (exit 1 after 2.1 s)"), "weather", "stopped"),
        (ServerError("`weather` did not answer within 60 s"), "weather", "too slow to start"),
        (EngineError("the image of `weather` did not build"), "weather", "image missing"),
        (PrerequisiteError("only 12 MB are free for images and containers"), None, "disk full"),
        (
            EngineError("the image of `weather` did not build", details=["write: no space left on device"]),
            "weather",
            "disk full",
        ),
    ],
)
def test_why_a_server_did_not_start(here, capsys, error, server, cause) -> None:
    paths = ProjectPaths.of("mine")
    paths.folder.mkdir(parents=True)
    with pytest.raises(type(error)), failure.remembered(paths):
        raise error
    told = failure.recall(paths)
    assert told is not None
    assert (why_up.server_of(told), why_up.kind_of(told)) == (server, cause)
    assert run("why", "mine", "--up") == 0
    assert f" · {cause}" in capsys.readouterr().out
    assert run("why", "other", "--up") == 2
