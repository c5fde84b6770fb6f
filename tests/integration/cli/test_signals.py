"""A signal while gymctl starts, whenever it comes: one line, the documented exit code, no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gymctl.cli import list as listing
from gymctl.cli.main import run_words

STRIKE = """\
import os, sys

name, number = os.environ["STRIKE"].split(":")

class Finder:
    def find_spec(wanted, path=None, target=None):
        if wanted == name:
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Finder)
"""
MADE = """\
import os, signal

class Named:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)

class Owner:
    name = Named()
"""


def struck(folder: Path, module: str, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`gymctl` that gets the signal in the moment in which it begins to import `module`."""
    (folder / "sitecustomize.py").write_text(STRIKE)
    environ = {**os.environ, "PYTHONPATH": str(folder), "STRIKE": f"{module}:{number}"}
    command = [sys.executable, "-m", "gymctl", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("gymctl.cli.main", signal.SIGINT),
        ("enum", signal.SIGINT),
        ("typer.core", signal.SIGTERM),
        ("gymctl.cli.passport", signal.SIGHUP),
        ("gymctl.config.problems", signal.SIGINT),
        ("pydantic", signal.SIGTERM),
        ("yaml", signal.SIGHUP),
    ],
)
def test_a_signal_during_imports(tmp_path: Path, module: str, number: int) -> None:
    done = struck(tmp_path, module, number, "list", "--json")
    assert (done.returncode, done.stderr) == (128 + number, "error: interrupted\n")
    told = json.loads(done.stdout)["error"]
    assert (told["what"], told["exit_code"]) == ("interrupted", 128 + number)


def test_a_signal_that_python_tells_of_in_its_own_way_is_no_bug(tmp_path: Path) -> None:
    """It arrives as RuntimeError where it strikes a class that is being made."""
    (tmp_path / "yaml.py").write_text(MADE)
    done = struck(tmp_path, "nothing", 0, "list")
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_an_ignored_sighup_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STRIKE)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "STRIKE": f"gymctl.cli.main:{signal.SIGHUP}"}
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", "gymctl", "--version"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_inside_of_another_does_not_swallow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rerun` would go on as if its evaluation had been made."""

    def struck() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "command", struck)
    with pytest.raises(KeyboardInterrupt):
        run_words(["list"])
