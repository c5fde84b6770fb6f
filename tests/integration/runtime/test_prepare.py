"""Prepare scripts of an installation of NeMo Gym: where their files land, and what they need."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.prepared import config_of
from fakes.program import gymctl, read_lines

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.runtime import prepare, releases

SCRIPT = """\
import json
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"

def prepare(*, size: int = 2):
    DATA.mkdir(exist_ok=True)
    path = DATA / "rows.jsonl"
    path.write_text("".join(json.dumps({"question": str(n)}) + "\\n" for n in range(size)))
    (DATA / "pictures").mkdir(exist_ok=True)
    (DATA / "pictures" / "1.txt").write_text("one")
    print("wrote", path)
    assert size != 7, f"no luck with {path}"
    return path
"""
CONFIG = config_of("benchmarks/sums-x/prepare.py", "benchmarks/sums-x/data/rows.jsonl")
PREPARE = ("dataset", "prepare", "--search-dir", "../installed", "--benchmark", "sums-x")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A current folder, beside an installation with one benchmark."""
    benchmark = tmp_path / "installed" / "benchmarks" / "sums-x"
    benchmark.mkdir(parents=True)
    (tmp_path / "installed" / "nemo_gym-0.7.0.dist-info").mkdir()
    (benchmark / "prepare.py").write_text(SCRIPT)
    (benchmark / "config.yaml").write_text(CONFIG)
    mine = tmp_path / "mine"
    mine.mkdir()
    return mine


def places(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_files_land_below_the_current_folder_and_the_installation_stays(folder: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(folder.parent / "cache")}
    before = places(folder.parent / "installed")
    done = gymctl(*PREPARE, "++prepare_script_args.size=3", cwd=folder, environ=environ)

    rows = folder / "benchmarks" / "sums-x" / "data" / "rows.jsonl"
    assert (done.returncode, done.stdout) == (0, f"{rows}\n"), done.stderr
    assert len(read_lines(rows)) == 3
    assert places(folder) == {
        "benchmarks/sums-x/data/rows.jsonl",
        "benchmarks/sums-x/data/pictures/1.txt",
    }
    assert places(folder.parent / "installed") == before
    assert places(folder.parent / "cache") == set()

    failed = gymctl(*PREPARE, "++prepare_script_args.size=7", cwd=folder, environ=environ)
    assert (failed.returncode, f"no luck with {rows}" in failed.stderr) == (4, True), failed.stderr
    assert len(read_lines(rows)) == 3
    cached = gymctl(*PREPARE, "++use_cached_prepared_benchmarks=true", cwd=folder, environ=environ)
    assert (cached.returncode, "every file is there" in cached.stdout) == (0, True), cached.stderr


def test_a_script_that_needs_nemo_gym_says_so_where_no_engine_answers(folder: Path) -> None:
    script = folder.parent / "installed" / "benchmarks" / "sums-x" / "prepare.py"
    script.write_text("from nemo_gym.global_config import get_hf_token\n" + SCRIPT)
    done = gymctl(*PREPARE, cwd=folder, environ={"DOCKER_HOST": f"unix://{folder}/none.sock"})

    assert done.returncode == 3, done.stderr
    assert "the prepare script of `sums` needs a container, for it imports `nemo_gym`" in done.stderr
    assert places(folder) == set()


RELEASE = "nemo-gym==0.7.0"


def test_a_benchmark_of_the_published_package_is_prepared_here(tmp_path: Path) -> None:
    chosen = ("--search-dir", RELEASE, "--benchmark", "answer-judge")
    done = gymctl("dataset", "prepare", *chosen, cwd=tmp_path)

    rows = tmp_path / "benchmarks" / "answer-judge" / "data" / "answer-judge_benchmark.jsonl"
    assert (done.returncode, done.stdout) == (0, f"{rows}\n"), done.stderr
    assert len(read_lines(rows)) == 12
    assert places(tmp_path) == {str(rows.relative_to(tmp_path))}
    root = Path(releases.folders([RELEASE], print)[0])
    assert not (root / rows.relative_to(tmp_path)).exists()


@pytest.mark.parametrize(
    ("benchmark", "reason"),
    [
        ("aegis_v4_safety", None),
        ("gsm8k", None),
        ("aime24", "it imports `datasets`"),
        ("hle", "it imports `nemo_gym`"),
        ("agentif", "it imports `prepare_agentif`"),
        ("ruler2", "it runs other files or programs"),
        ("iheval", "it runs other files or programs"),
    ],
)
def test_a_container_for_what_the_packages_own_scripts_need(
    benchmark: str, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = releases.folders([RELEASE], print)[0]
    config = load(Selection(benchmark=(benchmark,), search_dir=(root,), needs_model=False))
    (script,) = prepare.plan(config, {}, keeps_files=False)

    assert script.reason == reason
    assert script.place == tmp_path
