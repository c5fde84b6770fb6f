"""Where a relative path may lie: extra roots, the current folder and those it names, the installation
(CONTRACT 1.6)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gymctl.config.reading.folder import search_dirs
from gymctl.errors import UsageError
from gymctl.paths import install_roots

EXTRA_ROOTS = "NEMO_GYM_EXTRA_ROOTS"
ENV_FILE = "env.yaml"
"""The settings of a folder; the first one over the roots counts."""


def is_file(path: Path) -> bool:
    """Like `Path.is_file`; no error for a name too long or a folder that may not be entered."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Like `is_file`."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_special(path: Path) -> bool:
    """There, and no file or folder: a pipe, a device. Like `is_file`."""
    try:
        return path.exists() and not path.is_file() and not path.is_dir()
    except OSError:
        return False


@dataclass(frozen=True)
class SearchRoots:
    """Folders in winning order, without repeats."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, cwd: Path, environ: Mapping[str, str], search_dir: Iterable[str] = ()) -> SearchRoots:
        """`--search-dir` folders, NEMO_GYM_EXTRA_ROOTS, `cwd`, `search-dirs` of its pyproject.toml, then the
        installation."""
        asked = [cwd / folder for folder in search_dir]
        for folder in asked:
            if not is_folder(folder):
                raise UsageError(
                    f"`{folder}` is not a folder",
                    where="--search-dir",
                    hint="name a folder, or a published package as NAME==VERSION: nemo-gym==0.7.0",
                )
        extra = [cwd / entry for entry in environ.get(EXTRA_ROOTS, "").split(os.pathsep) if entry]
        resolved = [folder.resolve() for folder in (*asked, *extra, cwd, *search_dirs(cwd), *install_roots())]
        return cls(tuple(dict.fromkeys(resolved)))

    def candidates(self, path: str) -> list[Path]:
        """Every place where `path` is looked for; an absolute path has one."""
        return list(dict.fromkeys(root / path for root in self.folders))

    def find(self, path: str) -> Path | None:
        """The first existing file or folder."""
        return next((place for place in self.candidates(path) if is_file(place) or is_folder(place)), None)

    def find_all(self, path: str) -> list[Path]:
        return [place for place in self.candidates(path) if is_file(place)]
