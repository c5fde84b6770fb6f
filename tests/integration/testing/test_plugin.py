"""The fixtures in an author's own test run: a folder with a conftest.py and a test file, run by pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = 'pytest_plugins = ["gymctl.testing.plugin"]\n'
TESTS = '''
import pytest

from gymctl.servers import ResourcesServer, tool


class Greeter(ResourcesServer):
    @tool
    async def greet(self, name: str) -> str:
        """Greet."""
        return f"Hello {name}"


@pytest.mark.asyncio
async def test_a_server(serve):
    greeter = await serve(Greeter, name="greeter")
    assert await greeter.call("greet", name="Ada") == "Hello Ada"


@pytest.mark.asyncio
async def test_a_model(serve, scripted_model):
    model = await scripted_model(["Yes."])
    greeter = await serve(Greeter, servers={"policy_model": model})
    assert greeter.server.client.url("policy_model") == model.url


def test_containers(docker_engine):
    raise AssertionError("an engine answers")
'''


def run(folder: Path, **environ: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_mine.py").write_text(TESTS)
    # No engine is found at this address, whatever runs on the machine; strict mode is the default.
    environ = {**os.environ, "DOCKER_HOST": f"unix://{folder}/none.sock", **environ}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    ).stdout


def test_the_fixtures_work_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    shown = run(tmp_path, GYMCTL_REQUIRE_DOCKER="")
    assert "2 passed, 1 skipped" in shown, shown
    assert "no Docker engine answers (GYMCTL_REQUIRE_DOCKER=1 makes this a failure)" in shown


def test_a_required_engine_that_is_missing_is_a_failure(tmp_path: Path) -> None:
    shown = run(tmp_path, GYMCTL_REQUIRE_DOCKER="1")
    assert "2 passed, 1 error" in shown, shown
    assert "no Docker engine answers, and GYMCTL_REQUIRE_DOCKER is set" in shown
