"""The files of cassette servers on the host: there before a server starts, tidy after it ended."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gymctl.config.model import Config
from gymctl.contract import cassette
from gymctl.errors import PrerequisiteError

_RANK = {"part": 0, "request": 1, "answer": 2}
Name = tuple[int, str, str, int]


class _Line(NamedTuple):
    offset: int
    size: int


def prepare(config: Config, owner: tuple[int, int] | None) -> None:
    """Make the files that are to be recorded, and look at those to be played. Raises PrerequisiteError.

    owner: uid and gid that must be able to write, when they are not the caller's.
    """
    for path, is_recorded in _files(config):
        if not is_recorded:
            _check(path)
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.stat().st_size == 0:
                path.write_bytes(cassette.line(cassette.HEADER))
            _check(path)
            if owner is not None:
                os.chown(path, *owner)
        except OSError as error:
            raise PrerequisiteError(
                f"the cassette cannot be written: {error.strerror}", where=str(path)
            ) from error


def finish(config: Config) -> list[Path]:
    """Sort what was recorded, so that equal recordings are equal files. Returns the recorded files.

    A file that another recorder holds, or for whose copy there is no room, stays as it is: it is complete
    either way.
    """
    recorded = [path for path, is_recorded in _files(config) if is_recorded and path.exists()]
    for path in recorded:
        with suppress(OSError):
            tidy(path)
    return recorded


def tidy(path: Path) -> None:
    """Header, parts, requests, answers, each sorted; torn lines, old answers and what nobody asks for go."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept = _kept(file.fileno())
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("wb") as out:
                out.write(cassette.line(cassette.HEADER))
                for name in sorted(kept):
                    out.write(os.pread(file.fileno(), kept[name].size, kept[name].offset))
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _files(config: Config) -> list[tuple[Path, bool]]:
    """The file of every cassette server, each once, and whether it is recorded."""
    found: dict[Path, bool] = {}
    for block in config.servers.values():
        named = block.settings.get("file")
        if block.implementation == cassette.IMPLEMENTATION and isinstance(named, str):
            path = Path(named)
            found[path] = found.get(path, False) or block.settings.get("mode") == "record"
    return list(found.items())


def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            cassette.check_header(file.readline(), str(path))
    except FileNotFoundError:
        raise PrerequisiteError(
            "there is no such cassette", where=str(path), hint="record it: gymctl eval … --model record:FILE"
        ) from None
    except OSError as error:
        raise PrerequisiteError(f"the cassette cannot be read: {error.strerror}", where=str(path)) from error


def _kept(descriptor: int) -> dict[Name, _Line]:
    kept: dict[Name, _Line] = {}
    needs: dict[str, list[str]] = {}
    """By request: the parts that it is made of."""
    for entry, place in _entries(descriptor):
        name = _name(entry)
        if name is None:
            continue
        kept[name] = place
        if "messages" in entry:
            needs[entry["request"]] = [entry["settings"], *entry["messages"]]
    requests = {name[2] for name in kept if name[0] == _RANK["answer"]}
    parts = {part for request in requests for part in needs.get(request, ())}
    wanted = {"part": parts, "request": requests}
    return {
        name: place
        for name, place in kept.items()
        if name[0] == _RANK["answer"] or name[1] in wanted["part" if name[0] == 0 else "request"]
    }


def _entries(descriptor: int) -> Iterator[tuple[dict[str, Any], _Line]]:
    offset = 0
    with os.fdopen(os.dup(descriptor), "rb") as file:
        for line in file:
            entry = cassette.parsed(line) if line.endswith(b"\n") else None
            if entry is not None:
                yield entry, _Line(offset, len(line))
            offset += len(line)


def _name(entry: dict[str, Any]) -> Name | None:
    kind = cassette.kind_of(entry)
    if kind is None:
        return None
    if kind == "answer":
        return _RANK[kind], entry["rollout"], entry["answer"], entry["n"]
    return _RANK[kind], entry[kind], "", 0
