"""What a server written on NeMo Gym's SDK gets in its container, and what it must not show."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests
from fakes.program import gymctl
from peer import setup
from peer.slice import LARGE, PROJECT, SECRET, Slice, docker, write_server

pytestmark = pytest.mark.timeout(1800)


def told(up: Slice, server: str) -> dict[str, Any]:
    answer = requests.post(f"{up.urls[server]}/write", timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_configuration_larger_than_an_environment_variable_arrives(up: Slice) -> None:
    assert told(up, "diary")["length"] == LARGE


def test_a_server_may_write_beside_its_code(up: Slice) -> None:
    answer = told(up, "diary")
    assert (answer["wrote"], answer["uid"] == 0) == ("dear diary", False)


def test_a_server_runs_as_root_where_its_block_says_so(up: Slice) -> None:
    assert told(up, "root_diary")["uid"] == 0


def test_a_key_reaches_the_server_and_is_seen_nowhere_else(up: Slice) -> None:
    assert told(up, "diary")["key"] == SECRET
    containers = docker("ps", "-aq", "--filter", f"label=dev.gymctl.project={PROJECT}").split()
    images = {one["image"] for one in up.listed}
    texts = [docker("inspect", *containers), docker("image", "inspect", *images)]
    texts += [docker("history", "--no-trunc", image) for image in images]
    texts += [docker("logs", container) for container in containers]
    texts += [requests.get(f"{up.urls['head']}/global_config_dict_yaml", timeout=60).text]
    assert len(containers) == len(up.listed)
    assert [text for text in texts if SECRET in text] == []


def test_an_app_that_cannot_import_something_ends_up_with_its_reason(tmp_path: Path) -> None:
    write_server(tmp_path, "broken", "import nemo_gym\nimport no_such_package\n")
    block = {"broken": {"resources_servers": {"broken": {"entrypoint": "app.py", "domain": "other"}}}}
    (tmp_path / "broken.yaml").write_text(json.dumps(block))
    port = f"++head_server.port={setup.free_port()}"
    done = gymctl("up", "--detach", "--project", "nemo-gym-broken", port, "broken.yaml", cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert "`broken`" in done.stderr
    assert "No module named 'no_such_package'" in done.stderr
    left = subprocess.run(
        ["docker", "ps", "-aq", "--filter", "label=dev.gymctl.project=nemo-gym-broken"],
        capture_output=True,
        text=True,
    )
    assert left.stdout == ""
