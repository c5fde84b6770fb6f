"""What a user gets from the package index: one wheel that finds its own servers, templates and benchmarks."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)],
        check=True,
        capture_output=True,
    )
    return next(target.glob("gymctl-*.whl"))


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script folder of a clean environment that holds the wheel and nothing of this checkout."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    binary = uv.find_uv_bin()
    constraints = str(ROOT / "scripts" / "constraints.txt")
    subprocess.run([binary, "venv", "-q", "--python", sys.executable, str(environment)], check=True)
    python = str(environment / "bin" / "python")
    subprocess.run(
        [binary, "pip", "install", "-q", "--python", python, "--constraint", constraints, str(wheel)],
        check=True,
    )
    return environment / "bin"


def test_the_wheel_carries_the_bundled_folders_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for expected in (
        "gymctl/_bundled/Dockerfile.base",
        "gymctl/_bundled/templates/Dockerfile.server",
        "gymctl/_bundled/server_images/base.lock",
        "gymctl/_bundled/server_images/resources_servers/weather/app.py",
        "gymctl/_bundled/server_images/resources_servers/weather/configs/weather.yaml",
        "gymctl/_bundled/benchmarks/arithmetic/config.yaml",
        "gymctl/_bundled/scripts/python_image.sh",
    ):
        assert expected in names
    bundled = [name.split("/") for name in names if name.startswith("gymctl/_bundled/")]
    left_out = {"tests", "conftest.py", "__pycache__", "env.yaml"}
    assert not [path for path in bundled if left_out.intersection(path)]
    assert not [path for path in bundled if any(part.startswith(".") for part in path)]


def test_the_commands_are_installed(scripts: Path) -> None:
    for name in ("gymctl", "gym", "ng_run", "ng_collect_rollouts"):
        assert (scripts / name).is_file()


def test_a_benchmark_is_found_from_another_folder(scripts: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [scripts / "gymctl", "config", "show", "arithmetic", "--model-type", "llama_cpp_model"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "llama_cpp_model:" in done.stdout
    assert "reasoning_tasks" in done.stdout
