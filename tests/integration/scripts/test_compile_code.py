"""scripts/compile_code.py: byte code that depends on nothing but its file, and is valid at any file time."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "compile_code.py"


def compiled(folder: Path) -> dict[str, bytes]:
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True)
    return {file.name.partition(".")[0]: file.read_bytes() for file in folder.rglob("*.pyc")}


def write(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(
            f"def {name}(shared, other):\n    return shared.attribute('{name}')\n"
        )


def test_what_is_compiled_beside_a_file_does_not_change_its_byte_code(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    write(folder, "zebra")
    alone = compiled(folder)["zebra"]
    for file in folder.rglob("*.pyc"):
        file.unlink()
    write(tmp_path / "package" / "inner", *"abcdefgh")
    assert compiled(tmp_path)["zebra"] == alone


def test_byte_code_that_is_there_stays_and_a_file_that_does_not_compile_is_passed_over(
    tmp_path: Path,
) -> None:
    write(tmp_path, "good")
    (tmp_path / "template.py").write_text("{% if python %}\n")
    cache = Path(importlib.util.cache_from_source(str(tmp_path / "good.py")))
    assert compiled(tmp_path).keys() == {"good"}
    assert cache.read_bytes()[4:8] == (1).to_bytes(4, "little"), (
        "unchecked: valid whatever the file's time is"
    )
    cache.write_bytes(b"kept")
    assert compiled(tmp_path)["good"] == b"kept"
