"""What a run was made with, in `runs/x/passport.json`: enough to refuse to go on under something else.

The identity of a run is its rows and the configuration and code of its servers. What changes when or how
fast a rollout is made, but not what it comes to, is no part of it: concurrency, time limits, ports, the
output, the order of the rows.
"""

from __future__ import annotations

import hashlib
import json
import platform
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from gymctl import __version__
from gymctl.errors import RunError
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.lines import replace
from gymctl.rollouts.prices import ModelServer

SCHEMA = 1
_LONGEST_VALUE = 60
_SHOWN = 12
_DIGEST_SHOWN = len("sha256:") + 12


@dataclass(frozen=True, slots=True)
class Identity:
    """What the caller knows of a run beside its rows. Secrets are masked already."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """By dotted key: what a rollout may come out differently for, servers' code included."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By dotted key, as they were asked for. They act through the rows; here they explain a difference."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the rows were read from, and their digests."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """What one rollout may use, by flag. No reason not to go on, but one for another result."""
    title: str = ""
    model: str | None = None
    """As it is shown."""
    command: Sequence[str] = ()


class Continuation(BaseModel):
    """One time that the run was gone on with."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    at: str
    command: list[str] = []
    gymctl: str = ""
    in_spite_of: list[str] = []
    """Differences that were waived by --resume-anyway."""


class Passport(BaseModel):
    """`passport.json`."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    schema_version: int = SCHEMA
    run: str
    """Random; part of every idempotency key, so that an attempt sent again is known as the same one."""
    created: str
    title: str = ""
    model: str | None = None
    command: list[str] = []
    gymctl: str = ""
    python: str = ""
    rows: str
    """Digest of the materialized inputs, whatever their order."""
    rollouts: int
    repeats: int
    config_digest: str
    config: dict[str, Any]
    settings: dict[str, Any]
    files: dict[str, str]
    limits: dict[str, Any] = {}
    """Of the first time; `continued` has the command of each later one."""
    images: dict[str, str] = {}
    """By server: the image that it ran, as far as known."""
    continued: list[Continuation] = []


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

    key: str
    old: Any
    new: Any
    kind: str = ""
    """`image`, `config`, `file`, …: told where two runs are compared."""

    def __str__(self) -> str:
        return f"{self.key}: {short(self.old)} → {short(self.new)}"


class RowsDigest:
    """A digest of rows that does not depend on their order: the sum of the digests of the lines."""

    def __init__(self) -> None:
        self._sum = 0
        self.count = 0

    @classmethod
    def of(cls, rows: Iterable[bytes]) -> RowsDigest:
        digest = cls()
        for line in rows:
            digest.add(line)
        return digest

    def add(self, line: bytes) -> None:
        self._sum += int.from_bytes(hashlib.sha256(line).digest(), "big")
        self.count += 1

    def __str__(self) -> str:
        return f"{self._sum % 2**256:064x}"


def issue(identity: Identity, rows: RowsDigest, repeats: int) -> Passport:
    """The passport of a new run."""
    return Passport(
        run=uuid.uuid4().hex,
        created=now(),
        title=identity.title,
        model=identity.model,
        command=list(identity.command),
        gymctl=__version__,
        python=platform.python_version(),
        rows=str(rows),
        rollouts=rows.count,
        repeats=repeats,
        config_digest=_digest(identity.config),
        config=dict(identity.config),
        settings=dict(identity.settings),
        files=dict(identity.files),
        limits=dict(identity.limits),
    )


def continued(passport: Passport, identity: Identity, waived: Sequence[Difference]) -> Passport:
    """The same run, gone on with now."""
    entry = Continuation(
        at=now(),
        command=list(identity.command),
        gymctl=__version__,
        in_spite_of=[str(difference) for difference in waived],
    )
    return passport.model_copy(update={"continued": [*passport.continued, entry]})


def read(path: Path) -> Passport | None:
    """None when there is none, also when the file is empty or broken. RunError: made by a newer gymctl."""
    try:
        found = Passport.model_validate(loads(path.read_bytes()))
    except (FileNotFoundError, ValueError):  # pydantic's is a ValueError
        return None
    if found.schema_version > SCHEMA:
        raise RunError(
            f"the run was made by a newer gymctl ({found.gymctl})",
            where=str(path),
            hint="continue it with that version",
        )
    return found


def write(path: Path, passport: Passport) -> None:
    """Old or new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, json.dumps(passport.model_dump(), indent=2).encode() + b"\n")


def model_servers(passport: Passport) -> list[ModelServer]:
    """Those that the run's agents ask."""
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    asked: set[Any] = set()
    for key, value in passport.config.items():
        server, _, rest = key.partition(".responses_api_models.")
        implementation, _, field = rest.partition(".")
        if rest:
            settings.setdefault((server, implementation), {})[field] = value
        elif ".responses_api_agents." in key and key.endswith(".name"):
            asked.add(value)
    return [
        ModelServer.of(implementation, fields)
        for (server, implementation), fields in settings.items()
        if server in asked
    ]


def differences(old: Passport, identity: Identity, rows: RowsDigest | None) -> list[Difference]:
    """What is not as it was; of the rows what explains it. `rows` is None: they cannot be read again."""
    found: list[Difference] = []
    if rows is not None and str(rows) != old.rows:
        found += _changed(old.settings, identity.settings)
        found += _changed(old.files, identity.files)
        found = found or [Difference("rows", f"sha256:{old.rows}", f"sha256:{rows}")]
    return found + list(_changed(old.config, identity.config))


def between(old: Passport, new: Passport) -> list[Difference]:
    """What two runs were made with differently. A file counts by what is in it, not by where it lies."""
    common = set(old.files.values()) & set(new.files.values())
    old_files, new_files = (
        {path: digest for path, digest in one.files.items() if digest not in common} for one in (old, new)
    )
    old_versions, new_versions = ({"gymctl": one.gymctl, "python": one.python} for one in (old, new))
    return [
        *_changed(old.images, new.images, "image"),
        *_changed(old.config, new.config, "config"),
        *_changed(old.settings, new.settings, "setting"),
        *_changed(old_files, new_files, "file"),
        *_changed(old.limits, new.limits, "limit"),
        *_changed(old_versions, new_versions, "version"),
    ]


def refusal(output: Path, found: Sequence[Difference]) -> RunError:
    """The run cannot be gone on with under another configuration."""
    lines = [str(difference) for difference in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    return RunError(
        "the results at this place were made with something else",
        where=str(output),
        details=lines,
        hint="--output FILE keeps them and starts another run, --fresh replaces them, "
        "--resume-anyway goes on with them and notes the difference",
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], kind: str = "") -> Iterator[Difference]:
    plain: Mapping[str, Any] = loads(dumps(dict(new)))  # as it would be read back: no tuples
    for key in dict.fromkeys((*old, *plain)):
        if old.get(key) != plain.get(key):
            yield Difference(key, old.get(key), plain.get(key), kind)


def short(value: Any) -> str:
    """A value on one line; of a digest its beginning."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")
    text = "".join(character if character.isprintable() else " " for character in text)
    if text.startswith("sha256:"):
        return text[:_DIGEST_SHOWN]
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _digest(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(dumps(dict(sorted(config.items())))).hexdigest()
