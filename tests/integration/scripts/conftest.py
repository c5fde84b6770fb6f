"""A pretended checkout and machine: a script under test sees only the commands that a test puts there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOLS = "bash env cat cut sha256sum grep dirname mktemp tail rm comm sort xargs chmod"


class Checkout:
    """The script under test is the real one; everything that it calls is noted in `calls`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.bin = folder / "bin"
        self.log = folder / "calls"
        self.bin.mkdir()
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        self.user(1000)

    def real(self, *files: str) -> None:
        for file in files:
            target = self.folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, target)

    def fake(self, path: Path, script: str = "") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "{path.name} $*" >>{self.log}\n{script}\n')
        path.chmod(0o755)
        return path

    def user(self, number: int) -> None:
        (self.bin / "id").write_text(f"#!/bin/bash\necho {number}\n")
        (self.bin / "id").chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def run(self, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / script, *arguments],
            env={"PATH": str(self.bin), "HOME": "/nonexistent", **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)
