"""GymStack: a project in containers for the length of a block, twice at once, and nothing left afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from fakes import servers_page
from fakes.program import gymctl

from gymctl.errors import ServerError, UsageError
from gymctl.images.lock import read
from gymctl.testing.stack import GymStack

PAGE_TEST = "mine/tests/test_in_containers.py"
WEATHER = {"benchmark": "weather", "model_type": "scripted_model"}
ROWS = Path(__file__).parents[3] / "benchmarks" / "weather" / "data" / "weather.jsonl"


def left_of(folder: Path) -> list[str]:
    """Containers and networks of projects that were started in a folder."""
    label = f"label=dev.gymctl.folder={folder.resolve()}"
    listed = [
        subprocess.run(["docker", *what, "-q", "--filter", label], capture_output=True, text=True, check=True)
        for what in (["ps", "-a"], ["network", "ls"])
    ]
    return [line for one in listed for line in one.stdout.splitlines()]


def reapers() -> str:
    command = ["docker", "images", "-q", "testcontainers/ryuk"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def get(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:
        return answer.read()


def test_a_project_is_up_twice_at_once_and_then_gone(tmp_path: Path) -> None:
    """B53."""
    before = reapers()
    with GymStack(folder=tmp_path, **WEATHER) as stack, GymStack(folder=tmp_path, **WEATHER) as other:
        assert stack.project != other.project
        assert set(stack.urls.values()).isdisjoint(other.urls.values())
        assert get(f"{stack.url('weather')}/livez") == b'{"status":"ok"}'
        assert get(f"{other.head_url}/readyz") == b'{"status":"ok"}'
        with pytest.raises(UsageError, match="there is no server `wether`"):
            stack.url("wether")
        out, _, code = stack.compose.exec_in_container(["python", "-c", "print(6 * 7)"], "weather")
        assert (out.strip(), code) == ("42", 0)
        assert "listens on" in "".join(stack.compose.get_logs("weather"))
        rows = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()[:5]]
        done = asyncio.run(stack.run(rows, repeats=2, output=tmp_path / "kept.jsonl"))
        assert len(done.rewards) == 10
        assert done.failures == []
        assert done.metrics[0]["agent_metrics"]["mean/reward"] == pytest.approx(sum(done.rewards) / 10)
        assert len(left_of(tmp_path)) == 2 * (len(stack.urls) + 2), "servers, a head and a network each"
    assert left_of(tmp_path) == []
    assert list((tmp_path / ".gymctl").glob("*/")) == []
    assert reapers() == before
    with pytest.raises(UsageError, match="not up"):
        _ = stack.head_url

    lock = read(tmp_path / "kept" / "images.lock.json")
    assert {"Dockerfile.base", "resources_servers/weather"} <= {image.name for image in lock.images}
    verified = gymctl("verify", "kept.jsonl", cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    for line in ("passport", "seal", "images.lock.json", "image weather"):
        assert re.search(rf"^{line} +ok", verified.stdout, re.MULTILINE), verified.stdout


async def test_overrides_reach_the_servers_and_an_error_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    fault = "++policy_model.responses_api_models.scripted_model.faults={statuses: {500: 1.0}}"
    with pytest.raises(LookupError):
        async with GymStack(folder=tmp_path, overrides=[fault], **WEATHER) as stack:
            done = await stack.run(ROWS, limit=2)
            assert done.records == []
            assert [failure["_ng_failure_class"] for failure in done.failures] == ["agent_run_error"] * 2
            raise LookupError("a test that fails")
    assert left_of(tmp_path) == []


def test_a_server_that_dies_at_the_start_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "resources_servers" / "broken"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text("raise RuntimeError('no way')\n")
    (folder / "requirements.txt").write_text("")
    (folder / "configs" / "broken.yaml").write_text(
        "broken:\n  resources_servers:\n    broken:\n      entrypoint: app.py\n      domain: agent\n"
    )
    with (
        pytest.raises(ServerError, match="no way"),
        GymStack(folder=tmp_path, resources_server="broken", model_type="scripted_model"),
    ):
        raise AssertionError("it cannot come up")
    assert left_of(tmp_path) == []


@pytest.mark.parametrize("moment", ["starting", "up"])
def test_ctrl_c_leaves_nothing(tmp_path: Path, moment: str) -> None:
    program = (
        "import time\n"
        "from gymctl.testing.stack import GymStack\n"
        "print('starting', flush=True)\n"
        f"with GymStack(**{WEATHER!r}) as stack:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(3600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        # A background job of a shell ignores the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        assert running.stdout is not None
        while (line := running.stdout.readline().strip()) != moment.encode():
            assert line, "it has ended"
        if moment == "starting":
            end = time.monotonic() + 60
            while not left_of(tmp_path) and time.monotonic() < end:
                time.sleep(0.05)
        os.kill(running.pid, signal.SIGINT)
        time.sleep(0.2)
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(120) != 0
    assert left_of(tmp_path) == []


def test_the_page_about_servers_has_a_test_that_passes_in_containers(tmp_path: Path) -> None:
    servers_page.write(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    shown = subprocess.run([*command, PAGE_TEST], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in shown.stdout, shown.stdout + shown.stderr
    assert left_of(tmp_path) == []
