"""What a prepare script needs, told from its text and that of its root's modules; nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from gymctl.config.server_classes import newer_python

_GIT = re.compile(r"[\"']git[\"' ]")
_RUNS_OTHERS = re.compile(r"spec_from_file_location|import_module|sys\.path|\brunpy\b|\bsubprocess\b")
_VARIABLE = re.compile(r"[\"']([A-Z][A-Z0-9_]{2,})[\"']")


@dataclass(frozen=True, slots=True)
class Code:
    """The text of a script and of the modules that come with it."""

    text: str
    modules: frozenset[str]
    """Top-level names that it imports and that are neither in Python's library nor in the script's root."""
    is_newer: bool = False
    """A file of it is written for a newer Python than ours."""

    @property
    def needs_git(self) -> bool:
        return _GIT.search(self.text) is not None

    @property
    def runs_others(self) -> bool:
        """It runs files that no import names, or programs (`uv`, `git`)."""
        return _RUNS_OTHERS.search(self.text) is not None

    @property
    def variables(self) -> frozenset[str]:
        """Names that may be those of environment variables that it reads."""
        return frozenset(_VARIABLE.findall(self.text))


def is_here(module: str) -> bool:
    """Whether our own Python has a module of this name."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def reason_for_container(
    code: Code,
    dependencies: Collection[str],
    *,
    is_of_nemo_gym: bool,
    has: Callable[[str], bool] = is_here,
) -> str | None:
    """Why a script cannot run in a Python of ours; None when it can.

    What NeMo Gym's package brings with it (`datasets`, `openai`) its scripts do not name as dependencies.
    """
    missing = sorted(name for name in code.modules if not has(name))
    if missing and ("nemo_gym" in missing or is_of_nemo_gym or not dependencies):
        first = "nemo_gym" if "nemo_gym" in missing else missing[0]
        return f"it imports `{first}`"
    if code.is_newer:
        return f"it is written for a newer Python than {sys.version_info.major}.{sys.version_info.minor}"
    if is_of_nemo_gym and code.runs_others:
        return "it runs other files or programs"
    return None


def read(script: Path, root: Path, folders: Collection[str] | None = None) -> Code:
    """The code of `script` below `root`. folders: the entries of the root that hold modules of its own; None
    for all of them. Raises SyntaxError for the script itself; other files may hold what they like."""
    texts: dict[Path, str] = {}
    outside: set[str] = set()
    waiting = [script]
    is_newer = False
    while waiting:
        file = waiting.pop()
        if file in texts:
            continue
        content = file.read_bytes()
        texts[file] = content.decode("utf-8", "replace")
        try:
            tree = newer_python.parse(content)
            is_newer = is_newer or not _is_of_ours(content)
        except (SyntaxError, ValueError):
            if file == script:
                raise
            continue
        for dotted in _imported(tree, file, root):
            top = dotted.split(".")[0]
            if _is_own(top, root, folders):
                waiting.extend(_files(dotted, root))
            elif top not in sys.stdlib_module_names:
                outside.add(top)
    return Code("\n".join(texts.values()), frozenset(outside), is_newer)


def _is_of_ours(content: bytes) -> bool:
    try:
        ast.parse(content)
    except SyntaxError:
        return False
    return True


def _imported(tree: ast.AST, file: Path, root: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = file.relative_to(root).parts[: -node.level]
                base = ".".join((*parts, *([base] if base else [])))
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _is_own(top: str, root: Path, folders: Collection[str] | None) -> bool:
    if folders is not None and top not in folders:
        return False
    return (root / top).is_dir() or (root / f"{top}.py").is_file()


def _files(dotted: str, root: Path) -> Iterator[Path]:
    """The modules that an import of `dotted` runs: those of the packages above it, and its own."""
    place = root
    for part in dotted.split("."):
        if (place / f"{part}.py").is_file():
            yield place / f"{part}.py"
            return
        place = place / part
        if (place / "__init__.py").is_file():
            yield place / "__init__.py"
