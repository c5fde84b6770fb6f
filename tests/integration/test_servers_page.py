"""docs/servers.md is run as it is written: its servers are served and tested, its command is typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.program import gymctl
from fakes.servers_page import FILES, PAGE, write

[COMMAND] = re.findall(r"^\$ gymctl (.*)$", PAGE, re.M)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def test_every_block_of_code_is_a_file_that_is_run_here_or_in_containers() -> None:
    blocks = re.findall(r"^```python\n", PAGE, re.M)
    assert len(blocks) == sum(name.endswith(".py") for name in FILES)


def test_each_server_takes_less_than_40_lines() -> None:
    """Lines of code, without docstrings and what is blank."""
    apps = {name: text for name, text in FILES.items() if name.endswith("/app.py")}
    assert {name.split("/")[1] for name in apps} == {
        "resources_servers",
        "responses_api_agents",
        "responses_api_models",
        "environment_servers",
    }
    for name, text in apps.items():
        lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith('"""')]
        assert len(lines) < 40, name


def test_its_tests_pass(folder: Path) -> None:
    tests = ["mine/tests/test_vault.py", "mine/tests/test_steps.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "7 passed" in ended.stdout, ended.stdout + ended.stderr


def test_its_evaluation_has_the_promised_reward(folder: Path) -> None:
    ended = gymctl(*shlex.split(COMMAND), "--runtime", "process", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert "reward      0.500" in ended.stdout
    assert "The reward is 0.500" in PAGE
