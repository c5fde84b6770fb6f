"""Docker tests run where an engine answers; GYMCTL_REQUIRE_DOCKER=1 makes a missing engine a failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECONDS = 900
"""Of a test that names no limit. The first one on a new machine makes the base image, too."""


def _engine_answers() -> bool:
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.docker)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
    if not mine or _engine_answers():
        return
    if os.environ.get("GYMCTL_REQUIRE_DOCKER"):
        pytest.exit("Docker tests are required, and no engine answers (make engine)", returncode=1)
    for item in mine:
        item.add_marker(pytest.mark.skip(reason="no Docker engine answers (make engine)"))
