"""The copy that a prepare script works in: the root stays as it is, and only what was made is taken out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.runtime import prepare_worker

SCRIPT = """\
from pathlib import Path

def prepare():
    here = Path(__file__).resolve().parent
    (here / "data").mkdir(exist_ok=True)
    (here / "data" / "rows.jsonl").write_text((here / "seed.txt").read_text())
    (here / "data" / "more.txt").write_text("more")
    (here / "seed.txt").write_text("changed")
    (here.parent / "other" / "made.txt").write_text("also")
    return here / "data" / "rows.jsonl"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for place, text in {
        "benchmarks/my-sums/prepare.py": SCRIPT,
        "benchmarks/my-sums/seed.txt": "seed",
        "benchmarks/my-sums/data/rows.jsonl": "old",
        "benchmarks/my-sums/.venv/x": "x",
        "benchmarks/other/big.bin": "b" * (prepare_worker.LINKED_BYTES + 1),
        "lib/tool.py": "",
    }.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    (root / "benchmarks/my-sums/seed.txt").chmod(0o444)
    return root


def asked(root: Path, out: Path) -> dict[str, Any]:
    return {
        "root": str(root),
        "view": str(out / "view"),
        "copied": ["benchmarks"],
        "linked": ["lib"],
        "script": "benchmarks/my-sums/prepare.py",
        "module": None,
        "target": "benchmarks/my-sums/data/rows.jsonl",
        "args": {},
        "environ": {},
        "made": str(out / "files"),
        "result": str(out / "result.json"),
    }


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text()[:9] for p in folder.rglob("*") if p.is_file()}


def test_what_a_script_made_or_changed_is_taken_out_and_its_root_stays(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setattr("sys.path", [])
    before = files(root)
    prepare_worker.main(asked(root, tmp_path))

    assert files(root) == before
    assert files(tmp_path / "files") == {
        "benchmarks/my-sums/data/rows.jsonl": "seed",
        "benchmarks/my-sums/data/more.txt": "more",
        "benchmarks/my-sums/seed.txt": "changed",
        "benchmarks/other/made.txt": "also",
    }
    returned = json.loads((tmp_path / "result.json").read_text())
    assert returned == str(tmp_path / "view/benchmarks/my-sums/data/rows.jsonl")


def test_the_copy_holds_neither_the_old_file_nor_environments_and_links_what_is_large(
    root: Path, tmp_path: Path
) -> None:
    view = tmp_path / "view"
    laid = prepare_worker.lay_out(root, view, ["benchmarks"], ["lib"], "benchmarks/my-sums/data/rows.jsonl")

    assert (view / "lib").is_symlink()
    assert (view / "benchmarks/other/big.bin").is_symlink()
    assert not (view / "benchmarks/my-sums/prepare.py").is_symlink()
    assert (view / "benchmarks/my-sums/data").is_dir()
    assert set(laid) == {
        "benchmarks/my-sums/prepare.py",
        "benchmarks/my-sums/seed.txt",
        "benchmarks/other/big.bin",
    }
