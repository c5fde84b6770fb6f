"""What requirements.txt and pyproject.toml say: packages that need a GPU, repositories, Python versions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymctl.config.folder_text import text_of
from gymctl.config.needs.need import Need
from gymctl.errors import Place

GPU_PACKAGES = frozenset({"vllm", "sglang", "tensorrt-llm", "flash-attn", "deepspeed"})
BROWSER_PACKAGES = frozenset({"playwright", "selenium"})
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_URL = re.compile(r"(?:git|hg|svn|bzr)\+\w+://[^\s;@#]+|https?://[^\s;#]+")
_OPTION = re.compile(r"\s*(?:-e|--editable)[ =]\s*")
_BOUND = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?$")


def needs(folder: Path) -> Iterator[Need]:
    for name in ("requirements.txt", "requirements-nodeps.txt"):
        file = folder / name
        for number, line in enumerate(text_of(file).splitlines(), 1):
            yield from _of_line(line, Place.at(str(file), number, 1))
    yield from _of_project(folder / "pyproject.toml")


def _of_line(line: str, place: Place) -> Iterator[Need]:
    text = _OPTION.sub("", line.partition(" #")[0])
    if not text.strip() or text.lstrip().startswith(("#", "-")):
        return
    url = _URL.search(text)
    if url is not None:
        yield Need("git", url[0], place)
    match = _NAME.match(text)
    if match is None:
        return
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    if name in GPU_PACKAGES:
        yield Need("gpu", f"package {name}", place, is_certain=True)
    if name in BROWSER_PACKAGES:
        yield Need("programs", f"a browser ({name})", place)
    extras = {extra.strip() for extra in (match[2] or "").split(",")}
    if name == "nemo-gym" and "sandbox" in extras:
        yield Need("sandbox", "packages of sandbox providers", place)


def _of_project(file: Path) -> Iterator[Need]:
    text = text_of(file)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    project: dict[str, Any] = content.get("project") or {}

    def place(wanted: str) -> Place:
        lines = text.splitlines()
        number = next((number for number, line in enumerate(lines, 1) if wanted in line), 1)
        return Place.at(str(file), number, 1)

    for dependency in project.get("dependencies") or ():
        yield from _of_line(str(dependency), place(str(dependency)))
    sources = ((content.get("tool") or {}).get("uv") or {}).get("sources") or {}
    for source in sources.values():
        url = source.get("git") or source.get("url") if isinstance(source, dict) else None
        if url:
            yield Need("git", str(url), place(str(url)))
    wanted = project.get("requires-python")
    if isinstance(wanted, str) and wanted.strip():
        yield Need("python", wanted, place("requires-python"), is_certain=True)


def is_met(wanted: str, version: tuple[int, ...]) -> bool:
    """Whether a Python `version` satisfies `>=3.11, <3.14`. True for a text that is no such list."""
    return all(_is_within(bound.strip(), version) for bound in wanted.split(",") if bound.strip())


def _is_within(bound: str, version: tuple[int, ...]) -> bool:
    match = _BOUND.match(bound)
    if match is None:
        return True
    operator, number, is_prefix = match[1], tuple(map(int, match[2].split("."))), bool(match[3])
    length = max(len(number), len(version))
    own, other = (parts + (0,) * (length - len(parts)) for parts in (version, number))
    starts = version[: len(number)] == number
    is_equal = starts if is_prefix else own == other
    match operator:
        case ">=":
            return own >= other
        case "<=":
            return own <= other
        case ">":
            return own > other
        case "<":
            return own < other
        case "!=":
            return not is_equal
        case "~=":
            return own >= other and version[: len(number) - 1] == number[:-1]
        case _:
            return is_equal
