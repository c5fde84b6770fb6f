"""In an image of NeMo Gym's family, every Python process finds its part in the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gymctl.paths import PACKAGE

DICT, PATH = "NEMO_GYM_CONFIG_DICT", "NEMO_GYM_CONFIG_PATH"


def run(folder: Path, code: str, **environ: str) -> str:
    """`code` in a process as the image starts it: the module alone on the path, installed first."""
    (folder / "nemo_gym_part.py").write_bytes((PACKAGE / "servers" / "nemo_gym_part.py").read_bytes())
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "GYMCTL_PART": str(folder / "part.json")}
    start = "import os, sys, subprocess, nemo_gym_part; nemo_gym_part.install(); "
    done = subprocess.run(
        [sys.executable, "-S", "-c", start + code],
        env={**known, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    part = {"role": "server", "name": "mcqa", "document": "mcqa: ü\n"}
    (tmp_path / "part.json").write_text(json.dumps(part))
    return tmp_path


def test_both_names_are_answered(folder: Path) -> None:
    code = f"print(os.getenv('{PATH}'), os.environ['{DICT}'].strip(), '{DICT}' in os.environ)"
    assert run(folder, code, PYTHONIOENCODING="utf-8") == "mcqa mcqa: ü True"


def test_neither_is_listed_or_inherited(folder: Path) -> None:
    inner = f"print(sorted(n for n in os.environ if n.startswith('NEMO')), '{DICT}' in dict(os.environ))"
    assert run(folder, inner) == "[] False"
    child = (
        f'subprocess.run([sys.executable, "-S", "-c", "import os; print(os.getenv(\'{PATH}\'))"], check=True)'
    )
    assert run(folder, child) == "None"


def test_a_document_beyond_the_limit_of_a_variable_is_answered(folder: Path) -> None:
    (folder / "part.json").write_text(json.dumps({"name": "mcqa", "document": "x" * 1_000_000}))

    code = f"print(len(os.environ['{DICT}'])); sys.stdout.flush(); subprocess.run(['true'], check=True)"
    assert run(folder, code) == "1000000"


def test_what_is_really_set_wins(folder: Path) -> None:
    assert run(folder, f"print(os.environ['{PATH}'])", **{PATH: "other"}) == "other"


def test_without_a_part_the_names_are_unknown(folder: Path) -> None:
    (folder / "part.json").unlink()

    assert run(folder, f"print(os.getenv('{PATH}'))") == "None"
    assert run(folder, f"os.environ['{PATH}']") == f"KeyError: '{PATH}'"


def test_other_names_are_as_ever(folder: Path) -> None:
    code = "os.environ['A'] = 'b'; print(os.getenv('A'), os.getenv('NOWHERE'), os.environ.pop('A'))"
    assert run(folder, code) == "b None b"


def test_the_constants_are_those_of_the_contract() -> None:
    from gymctl.contract import part
    from gymctl.servers import nemo_gym_part

    assert nemo_gym_part.PART_PATH == part.PART_PATH
    assert nemo_gym_part.PART_VARIABLE == part.PART_VARIABLE
