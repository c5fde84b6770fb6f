"""What a run was made with, in `runs/x/passport.json`: enough to refuse to go on under something else, to
check afterwards that nothing was touched (seal.py), and to make the run again.

The identity of a run is its rows and the configuration and code of its servers. What changes when or how
fast a rollout is made, but not what it comes to, is no part of it: concurrency, time limits, ports, the
output, the order of the rows.

What the machine is and what its containers were given comes in as data (`Surroundings`): nothing here knows
an engine or a configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
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

SCHEMA = 2
"""1 had neither seal nor surroundings; its runs are read, gone on with and compared."""


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
    places: Mapping[str, str] = field(default_factory=dict)
    """By a key of `config` or `files`: the file or folder whose digest stands there."""
    prompts: Sequence[str] = ()
    """Keys of `files` that are prompts: their digest is of the text, not of the file."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """By dotted key: who wrote the value."""
    config_text: str = ""
    """The whole configuration as `gymctl config show` prints it."""
    failures_count: Mapping[str, Any] = field(default_factory=dict)
    """Which failures the configuration declares to count as reward 0."""
    benchmark: Mapping[str, str] = field(default_factory=dict)
    """`reference` and `digest`, where it came from a registry."""
    repeats_run: Mapping[str, str] = field(default_factory=dict)
    """`run` and `output` of the run that this one makes again."""


class ServerSeen(BaseModel):
    """One server as it ran. None: not known, or no such limit."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    image: str | None = None
    id: str | None = None
    digest: str | None = None
    """`repository@sha256:…`, where the image came from a registry or was pushed."""
    environment: str | None = None
    """Process runtime: the digest of what its packages were installed from."""
    profile: str | None = None
    """How its container is fenced in: closed, compat."""
    cgroup: str | None = None
    """v1, v2: where the limits were read, inside. None: nowhere, so they are not known."""
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None


class Machine(BaseModel):
    """Where the run was made."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    runtime: str | None = None
    """compose, process."""
    engine: str | None = None
    compose: str | None = None
    kernel: str = ""
    architecture: str = ""
    cpus: int = 0
    utc_offset: str = ""
    is_clock_synchronized: bool | None = None
    """None: the kernel was not asked."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known once the servers are up."""

    servers: Mapping[str, ServerSeen] = field(default_factory=dict)
    runtime: str | None = None
    engine: str | None = None
    compose: str | None = None
    is_clock_synchronized: bool | None = None
    documents: Mapping[str, str] = field(default_factory=dict)
    """By file name: text to keep in the run's folder (`compose.yaml`, `images.lock.json`)."""


class Continuation(BaseModel):
    """One time that the run was gone on with."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    at: str
    command: list[str] = []
    gymctl: str = ""
    in_spite_of: list[str] = []
    """Differences that were waived by --resume-anyway."""


class Seal(BaseModel):
    """The last word of a session: what its files are. Absent while it runs, and when it was killed."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    at: str
    owed: int = 0
    """Rollouts that were still to be made."""
    files: dict[str, str] = {}
    """By ingredient (seal.py): `sha256:…`."""
    passport: str = ""
    """`sha256:…` of this passport without this line."""


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
    folder: str = ""
    """Where the command was typed."""
    gymctl: str = ""
    python: str = ""
    rows: str
    """Digest of the materialized inputs, whatever their order. That of each is in `rows.sha256`."""
    rollouts: int
    repeats: int
    sampling: dict[str, list[Any]] = {}
    """The values that the rows ask for, by parameter; at most `VALUES_KEPT` of each."""
    config_digest: str
    config: dict[str, Any]
    settings: dict[str, Any]
    files: dict[str, str]
    places: dict[str, str] = {}
    prompts: list[str] = []
    origins: dict[str, str] = {}
    limits: dict[str, Any] = {}
    """Of the first time; `continued` has the command of each later one."""
    failures_count: dict[str, Any] = {}
    benchmark: dict[str, str] = {}
    repeats_run: dict[str, str] = {}
    scores_run: dict[str, str] = {}
    """`run`, where it is known, and `output` of the run whose answers were scored again here."""
    images: dict[str, str] = {}
    """By server: the image that it ran, as far as known."""
    servers: dict[str, ServerSeen] = {}
    machine: Machine = Machine()
    models_returned: dict[str, int] = {}
    """Name of the model as the provider gave it back -> records, failed attempts too."""
    fingerprints_returned: dict[str, int] = {}
    """`system_fingerprint` -> records; empty when none was given back."""
    documents: dict[str, str] = {}
    """Files of the run that stood when it began: name -> `sha256:…`."""
    continued: list[Continuation] = []
    seal: Seal | None = None


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

    def add(self, line: bytes) -> str:
        """The digest of the line itself, in hex."""
        found = hashlib.sha256(line)
        self._sum += int.from_bytes(found.digest(), "big")
        self.count += 1
        return found.hexdigest()

    def __str__(self) -> str:
        return f"{self._sum % 2**256:064x}"


def issue(
    identity: Identity, rows: RowsDigest, repeats: int, sampling: Mapping[str, list[Any]] | None = None
) -> Passport:
    """The passport of a new run."""
    return Passport(
        run=uuid.uuid4().hex,
        created=now(),
        title=identity.title,
        model=identity.model,
        command=list(identity.command),
        folder=str(Path.cwd()),
        gymctl=__version__,
        python=platform.python_version(),
        rows=str(rows),
        rollouts=rows.count,
        repeats=repeats,
        sampling=dict(sampling or {}),
        config_digest=_digest(identity.config),
        config=dict(identity.config),
        settings=dict(identity.settings),
        files=dict(identity.files),
        places=dict(identity.places),
        prompts=list(identity.prompts),
        origins=dict(identity.origins),
        limits=dict(identity.limits),
        failures_count=dict(identity.failures_count),
        benchmark=dict(identity.benchmark),
        repeats_run=dict(identity.repeats_run),
        machine=_machine(Surroundings()),
    )


def continued(passport: Passport, identity: Identity, waived: Sequence[object]) -> Passport:
    """The same run, gone on with now; without a seal until it has ended again."""
    entry = Continuation(
        at=now(),
        command=list(identity.command),
        gymctl=__version__,
        in_spite_of=[str(difference) for difference in waived],
    )
    return passport.model_copy(update={"continued": [*passport.continued, entry]})


def surrounded(passport: Passport, seen: Surroundings) -> Passport:
    """With what is known now that the servers are up."""
    images = {name: server.image for name, server in seen.servers.items() if server.image}
    return passport.model_copy(
        update={
            "images": images or passport.images,
            "servers": dict(seen.servers) or passport.servers,
            "machine": _machine(seen),
        }
    )


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


def text(document: Any) -> bytes:
    """The bytes of `passport.json`."""
    return json.dumps(document, indent=2).encode() + b"\n"


def write(path: Path, passport: Passport) -> None:
    """Old or new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text(passport.model_dump()))


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


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _machine(seen: Surroundings) -> Machine:
    return Machine(
        runtime=seen.runtime,
        engine=seen.engine,
        compose=seen.compose,
        kernel=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpus=os.cpu_count() or 0,
        utc_offset=time.strftime("%z"),
        is_clock_synchronized=seen.is_clock_synchronized,
    )


def _digest(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(dumps(dict(sorted(config.items())))).hexdigest()
