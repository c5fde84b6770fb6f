"""`--help` is complete, and light enough to be asked for without thinking."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "fastapi", "omegaconf", "hydra", "docker", "python_on_whales", "pydantic", "yaml", "rich"}


def gymctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gymctl", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def modules_after(statement: str) -> set[str]:
    report = "import json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    script = f"{statement}\n{report}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_help_loads_no_heavy_package() -> None:
    assert modules_after("from gymctl.cli.main import application; application()") & HEAVY == set()


def test_the_weight_check_sees_a_heavy_import() -> None:
    assert "aiohttp" in modules_after("import aiohttp") & HEAVY


@pytest.mark.parametrize("command", ["eval", "up"])
def test_a_wrong_configuration_is_told_before_anything_heavy_is_loaded(command: str) -> None:
    statement = (
        f"from gymctl.cli.main import _run as run\nassert 2 == run(['{command}', 'nothing'], is_debug=False)"
    )
    assert modules_after(statement) & {"aiohttp", "docker", "rich", "requests"} == set()


def test_help_lists_every_command() -> None:
    done = gymctl("--help")
    assert done.returncode == 0
    for command in ("eval", "up", "ps", "logs", "down", "list", "doctor", "config"):
        assert f"  {command}" in done.stdout


@pytest.mark.parametrize("command", ["eval", "up", "ps", "logs", "down", "list", "doctor", "config"])
def test_each_command_has_help(command: str) -> None:
    done = gymctl(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    done = gymctl("evil")
    assert done.returncode == 2
    assert "evil" in done.stderr
    assert "Traceback" not in done.stderr


def test_version() -> None:
    assert gymctl("--version").stdout.startswith("gymctl 0.")
