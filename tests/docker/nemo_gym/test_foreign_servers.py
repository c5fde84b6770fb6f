"""A server on NeMo Gym's SDK that cannot start."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from fakes.program import gymctl
from peer import setup
from peer.slice import write_server

pytestmark = pytest.mark.timeout(1800)


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
