"""Imports go one way, and what is imported is what is declared (the drawing is in docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gymctl"

ANYONE = {"connections", "counts", "errors", "paths", "transport"}
MAY_IMPORT: dict[str, set[str]] = {
    "contract": set(),
    "metrics": {"contract"},
    "servers": {"metrics", "contract"},
    "config": {"contract"},
    "compose": {"config", "contract"},
    "images": {"config", "contract", "engine", "programs"},
    "runtime": {"compose", "images", "config", "contract", "engine", "programs"},
    "rollouts": {"metrics", "contract"},
    "clients": {"config", "contract"},
    "artefacts": {"rollouts", "runtime", "images", "config", "contract", "engine", "programs"},
    "cli": {
        *(
            "artefacts",
            "clients",
            "rollouts",
            "metrics",
            "runtime",
            "images",
            "compose",
            "config",
            "contract",
            "engine",
        ),
    },
    "testing": {"runtime", "rollouts", "metrics", "config", "engine", "programs", "servers", "contract"},
    "errors": set(),
    "paths": set(),
    "counts": set(),
    "transport": {"contract", "deferred", "connections"},
    "connections": {"contract", "deferred"},
    "deferred": {"contract"},
    "engine": {"programs"},
    "programs": set(),
    "__init__": set(),
    "__main__": {"cli"},
}
# Inside `config`: a line may import itself and what stands above it.
CONFIG_LADDER = (
    {"families", "folder_text", "model", "names", "policy", "problems", "project"},
    {"tree"},
    {"reading", "server_classes"},
    {"checks"},
    {"needs"},
    {"shaping"},
    {"ports", "sources"},
    {"load"},
    {"telling"},
)
SERVERS_LADDER = (
    {"stack"},
    {"resources", "agents", "environments", "models"},
    {"head", "load", "nemo_gym_part"},
    {"inprocess", "__main__"},
)
CONTAINER_HALF = {"contract", "metrics", "servers", "connections", "deferred", "errors", "paths", "transport"}
# A distribution whose import name differs from its own name.
IMPORT_NAMES = {
    "cyclonedx-python-lib": "cyclonedx",
    "packageurl-python": "packageurl",
    "pytest-asyncio": "pytest_asyncio",
    "hydra-core": "hydra",
    "pyyaml": "yaml",
    "python-on-whales": "python_on_whales",
}
# Declared because uvicorn or uv use them when they are there; no line of ours imports them.
USED_WITHOUT_IMPORT = {"httptools"}
# Imported through the distribution that owns them.
COMES_WITH = {"starlette": "fastapi", "pydantic_core": "pydantic"}


def part_of(path: Path, package: Path) -> str:
    """The layer a file belongs to: its folder, or its own name at the top."""
    relative = path.relative_to(package)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            if node.module == "gymctl":
                yield from (f"gymctl.{alias.name}" for alias in node.names)
            else:
                yield node.module


def wrong_imports(package: Path) -> list[str]:
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        part = part_of(path, package)
        allowed = MAY_IMPORT.get(part)
        if allowed is None:
            found.append(f"{path.relative_to(package)}: `{part}` is not in the drawing")
            continue
        for name in imported_names(path):
            pieces = name.split(".")
            if pieces[0] != "gymctl" or len(pieces) == 1 or pieces[1] == "__version__":
                continue
            if pieces[1] not in allowed | ANYONE | {part}:
                found.append(f"{path.relative_to(package)}: {part} may not import {pieces[1]}")
    return found


def steps_up(folder: Path, ladder: Sequence[set[str]]) -> list[str]:
    """Imports inside a folder from a higher line of its ladder, and from beside on all but the lowest."""

    def rung(part: str) -> int:
        return next(height for height, parts in enumerate(ladder) if part in parts)

    found: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        part = part_of(path, folder)
        for name in imported_names(path) if part != "__init__" else ():
            pieces = name.split(".")
            if pieces[:2] != ["gymctl", folder.name] or len(pieces) == 2:
                continue
            other = pieces[2]
            if other != part and (rung(other) > rung(part) or (rung(other) == rung(part) > 0)):
                found.append(f"{path.relative_to(folder)}: {part} may not import {other}")
    return found


def modules_of(package: Path) -> dict[str, Path]:
    root = package.parent
    named = {".".join(path.relative_to(root).with_suffix("").parts): path for path in package.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def cycles(package: Path) -> list[set[str]]:
    """Modules that need each other; lazy imports and those for type checkers count, too."""
    modules = modules_of(package)
    needs = {
        name: {other for other in known_modules(path, modules) if other != name}
        for name, path in modules.items()
    }
    reached: dict[str, set[str]] = {}
    for name in needs:
        ahead, reached[name] = [name], set()
        while ahead:
            new = needs[ahead.pop()] - reached[name]
            reached[name] |= new
            ahead += new
    tied = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in needs
        if name in reached[name]
    }
    return [set(knot) for knot in sorted(tied, key=sorted)]


def known_modules(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """`from a import b` is the module a.b where there is one, else a."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in modules or node.module in modules:
                    yield full if full in modules else str(node.module)


def third_party(package: Path, parts: set[str] | None, *, but: frozenset[str] = frozenset()) -> set[str]:
    names: set[str] = set()
    for path in package.rglob("*.py"):
        part = part_of(path, package)
        if (parts is not None and part not in parts) or part in but:
            continue
        names |= {name.split(".")[0] for name in imported_names(path)}
    return {COMES_WITH.get(name, name) for name in names - sys.stdlib_module_names - {"gymctl"}}


def declared(requirements: list[str]) -> set[str]:
    names = {re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0].lower() for line in requirements}
    return {IMPORT_NAMES.get(name, name) for name in names}


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_imports_go_one_way() -> None:
    assert wrong_imports(PACKAGE) == []


def test_no_modules_need_each_other() -> None:
    assert cycles(PACKAGE) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "gymctl"
    package.mkdir()
    (package / "a.py").write_text("def f():\n    from gymctl import b\n")
    (package / "b.py").write_text("from gymctl.c import g\n")
    (package / "c.py").write_text("if TYPE_CHECKING:\n    from gymctl.a import f\n")
    (package / "d.py").write_text("from gymctl import a\n")
    assert cycles(package) == [{"gymctl.a", "gymctl.b", "gymctl.c"}]


def test_imports_inside_config_go_one_way() -> None:
    assert steps_up(PACKAGE / "config", CONFIG_LADDER) == []
    assert steps_up(PACKAGE / "servers", SERVERS_LADDER) == []


def test_a_step_up_inside_config_is_found(tmp_path: Path) -> None:
    for folder, line in (
        ("tree", "from gymctl.config.reading.files import read\n"),
        ("reading", "def f():\n    from gymctl.config.server_classes import server_class\n"),
        ("telling", "from gymctl.config.load import load\nfrom gymctl.config.telling import explain\n"),
    ):
        (tmp_path / "config" / folder).mkdir(parents=True)
        (tmp_path / "config" / folder / "a.py").write_text(line)
    assert steps_up(tmp_path / "config", CONFIG_LADDER) == [
        "reading/a.py: reading may not import server_classes",
        "tree/a.py: tree may not import reading",
    ]


def test_a_wrong_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "contract").mkdir()
    (tmp_path / "contract" / "a.py").write_text("from gymctl.config.model import Config\n")
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "b.py").write_text("def f():\n    from gymctl import engine\n")
    (tmp_path / "novel.py").write_text("")
    assert wrong_imports(tmp_path) == [
        "contract/a.py: contract may not import config",
        "novel.py: `novel` is not in the drawing",
        "servers/b.py: servers may not import engine",
    ]


def test_host_dependencies_are_what_the_host_half_imports(project: dict[str, object]) -> None:
    imported = third_party(PACKAGE, None, but=frozenset({"servers", "testing"}))
    dependencies = declared(project["dependencies"])  # type: ignore[arg-type]
    assert imported == dependencies


def test_container_packages_are_what_the_container_half_imports(project: dict[str, object]) -> None:
    imported = third_party(PACKAGE, CONTAINER_HALF)
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    assert imported == declared(extras["servers"]) - USED_WITHOUT_IMPORT


def test_testing_imports_what_its_extra_brings(project: dict[str, object]) -> None:
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    brought = declared([*project["dependencies"], *extras["servers"], *extras["testing"]])  # type: ignore[misc]
    imported = third_party(PACKAGE, {"testing"})
    assert imported - declared(project["dependencies"]) - declared(extras["servers"]) == (  # type: ignore[arg-type]
        declared(extras["testing"]) - {"gymctl"}
    )
    assert imported <= brought


def test_an_undeclared_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "a.py").write_text("import numpy.linalg\nfrom starlette.routing import Route\n")
    assert third_party(tmp_path, CONTAINER_HALF) == {"numpy", "fastapi"}


def test_importing_the_package_imports_nothing_else() -> None:
    names = set(imported_names(PACKAGE / "__init__.py"))
    assert names == set()
