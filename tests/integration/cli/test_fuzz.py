"""A few broken files through the real command: exit code 0, 1 or 2 and never a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fakes.mutations import mutated, token
from fakes.program import gymctl

REPO = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("seed", range(8))
def test_a_broken_configuration_ends_in_a_documented_exit_code(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    source = (REPO / "benchmarks/weather/config.yaml").read_bytes()
    (tmp_path / "case.yaml").write_bytes(mutated(source, choose))
    # NUL and half a surrogate pair cannot be arguments of a program.
    override = token(choose).replace("\0", "").encode("utf-8", "ignore").decode()
    done = gymctl("config", "show", "case.yaml", "--", override, cwd=tmp_path, timeout=60)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "error: " in done.stderr
