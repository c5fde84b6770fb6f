"""The stand-in Gym folder as clients use it: `uv sync`, its `ng_run` in the foreground, a signal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uv
import yaml

from gymctl.runtime import keeper

CONFIGS = (
    "resources_servers/weather/configs/weather.yaml",
    "responses_api_models/scripted_model/configs/scripted_model.yaml",
)
PROCESSES = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
"""No engine answers, so the servers are local processes."""
STOP_SECONDS = 10
"""What axolotl gives before it kills."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environ() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"} | PROCESSES


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gym") / "Gym"
    subprocess.run([sys.executable, "-m", "gymctl", "gym-dir", str(folder)], check=True, capture_output=True)
    sync = [uv.find_uv_bin(), "sync", "-q", "--python", sys.executable]
    done = subprocess.run(sync, cwd=folder, env=environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "env.yaml").write_text(
        "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-of-env-yaml\npolicy_model_name: tiny\n"
    )
    return folder


@pytest.fixture
def running(gym: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`ng_run` as a client starts it, once its head says that all servers are ready."""
    port = free_port()
    command = [
        str(gym / ".venv" / "bin" / "ng_run"),
        f"+config_paths=[{','.join(CONFIGS)}]",
        "+skip_venv_if_present=true",
        *("+uv_pip_set_python=true", "+uv_venv_dir=.", "+head_server.host=0.0.0.0"),
        f"+head_server.port={port}",
    ]
    with (gym / "ng_run.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=gym, env=environ(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_ready(process, gym, port)
        yield process, port
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
    assert processes(gym) == []


def wait_ready(process: subprocess.Popen[bytes], gym: Path, port: int) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert process.poll() is None, (gym / "ng_run.log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail((gym / "ng_run.log").read_text())


def processes(gym: Path) -> list[str]:
    return [row.service for folder in (gym / ".gymctl").glob("*/parts") for row in keeper.find(folder)]


def document(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/global_config_dict_yaml") as answer:
        return yaml.safe_load(json.loads(answer.read()))


def ran(gym: Path, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    typed = [str(gym / ".venv" / "bin" / command[0]), *command[1:]]
    return subprocess.run(typed, cwd=cwd or gym, env=environ(), capture_output=True, text=True, timeout=120)


def test_uv_sync_yields_what_clients_look_for(gym: Path) -> None:
    for name in ("python", "ng_run", "ng_status", "ng_collect_rollouts", "gym", "gymctl"):
        assert os.access(gym / ".venv" / "bin" / name, os.X_OK), name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_within_the_time_that_clients_give(
    running: tuple[subprocess.Popen[bytes], int], gym: Path, number: int
) -> None:
    process, _ = running
    assert len(processes(gym)) == 5
    process.send_signal(number)
    assert process.wait(STOP_SECONDS) == 128 + number
    assert processes(gym) == []


def test_clients_find_the_servers_and_collect_rollouts(
    running: tuple[subprocess.Popen[bytes], int], gym: Path
) -> None:
    _, port = running
    served = document(port)
    assert served["policy_model_name"] == "tiny"  # env.yaml of the folder
    assert "sk-of-env-yaml" not in json.dumps(served)
    address = served["weather"]["resources_servers"]["weather"]
    with urllib.request.urlopen(f"http://{address['host']}:{address['port']}/", timeout=30) as answer:
        assert answer.status == 200

    status = ran(gym, "ng_status", f"+head_server.port={port}")
    assert "4 servers found (4 healthy, 0 unhealthy)" in status.stdout
    rows = json.loads(ran(gym, "gym", "env", "status", "--json").stdout)
    assert {row["process_name"]: row["status"] for row in rows} == dict.fromkeys(
        ("weather", "weather_simple_agent", "weather_environment_server", "policy_model"), "success"
    )

    script = [{"text": "It is sunny, 20 degrees."}]
    row = {
        "responses_create_params": {"input": "Oslo?", "metadata": {"script": json.dumps(script)}},
        "city": "Oslo",
    }
    (gym / "rows.jsonl").write_text(json.dumps(row) + "\n")
    collected = ran(
        gym,
        "ng_collect_rollouts",
        "+agent_name=weather_simple_agent",
        "+input_jsonl_fpath=rows.jsonl",
        "+output_jsonl_fpath=results/rollouts.jsonl",
        f"+head_server.port={port}",
        "+num_repeats=2",
    )
    assert collected.returncode == 0, collected.stderr
    records = [json.loads(line) for line in (gym / "results" / "rollouts.jsonl").read_text().splitlines()]
    assert [record["reward"] for record in records] == [0.0, 0.0]


def test_env_yaml_says_where_the_head_is(
    running: tuple[subprocess.Popen[bytes], int], gym: Path, tmp_path: Path
) -> None:
    _, port = running
    (tmp_path / "env.yaml").write_text(f"head_server: {{host: 0.0.0.0, port: {port}}}\n")
    (tmp_path / "rows.jsonl").write_text("")
    assert "4 healthy" in ran(gym, "ng_status", cwd=tmp_path).stdout
    files = ("+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl")
    collected = ran(gym, "ng_collect_rollouts", "+agent_name=weather_simple_agent", *files, cwd=tmp_path)
    assert collected.returncode == 0, collected.stderr


def test_without_servers_the_status_is_a_warning_and_an_empty_list(gym: Path) -> None:
    done = ran(gym, "gym", "env", "status", "--json", f"+head_server.port={free_port()}")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert "no head answers" in done.stderr
