"""The frozen result of loading: servers, head, datasets, settings, and where each value came from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gymctl.config.families import Family
from gymctl.contract.part import HttpSettings, Pool
from gymctl.contract.servers import Address, ServerKind
from gymctl.errors import ConfigError, Place


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote a value: a file with line and column (of its key), `env.yaml`, a flag, or a default."""

    source: str
    line: int | None = None
    column: int | None = None
    via: Origin | None = None
    """The directive (or flag) that brought the value from where it was written to where it is."""
    raw: str | None = field(default=None, compare=False, repr=False)
    """How a number or boolean is written, when that differs from how it is read: `no`, `0012`."""

    def through(self, place: Origin) -> Origin:
        """The same writer; `place` brought the value one step further."""
        return replace(self, via=place if self.via is None else self.via.through(place))

    def __str__(self) -> str:
        place = (self.source, self.line, self.column)
        written = ":".join(str(part) for part in place if part is not None)
        return written if self.via is None else f"{written} via {self.via}"

    @property
    def place(self) -> str:
        """For an error's `where`: a `Place` when it is one in a file."""
        if self.line is None or self.column is None:
            return str(self)
        return Place.at(self.source, self.line, self.column, text=str(self))


@dataclass(frozen=True, slots=True)
class Write:
    """What one place said about a value. `key` is where it said it: the value's own key, or one above it, or
    the key from which a directive brought it."""

    origin: Origin
    said: Any
    """In clear. Of anything but a value or default: what happened, in words or in the directive's text."""
    key: str
    kind: Literal["value", "directive", "rename", "composed", "alias", "default"] = "value"


@dataclass(frozen=True, slots=True)
class Reference:
    """A direct field of a block that names another server (CONTRACT 1.2)."""

    field: str
    kind: ServerKind
    name: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """One `datasets:` entry (CONTRACT 1.3) with the instance that declares it."""

    declared_by: str
    name: str
    type: str
    jsonl_fpath: str
    path: Path | None
    """`jsonl_fpath` resolved over the search roots; None when no root holds it."""
    num_repeats: int = 1
    prepare_script: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerBlock:
    """One server instance, resolved and checked."""

    name: str
    kind: ServerKind
    implementation: str
    entrypoint: str
    folder: Path
    """The server folder, `<root>/<kind>/<implementation>`, that holds the entrypoint."""
    settings: Mapping[str, Any]
    """The level-3 block, resolved, host and port filled in (host view)."""
    calls: tuple[Reference, ...]
    host: str
    port: int
    """The port published on the host; -1 when ports were not allocated."""
    is_port_explicit: bool
    workers: int = 1
    is_generated: bool = False
    """A relay made for an agent that no environment server fronts (CONTRACT 1.17)."""
    family: Family = "gymctl"
    """Whose SDK its folder is written for: what its image stands on, and how it is told its part."""
    uses_ray: bool = False
    """It joins a Ray cluster when it starts: its class declares it, or is NeMo Gym's and says nothing."""
    runs_ray_tasks: bool = False
    """Its code runs as tasks there, so Ray's containers must hold it; False for one that only joins."""

    @property
    def path(self) -> tuple[str, ServerKind, str]:
        """Where `settings` stand in the document."""
        return self.name, self.kind, self.implementation


class TokenCapture(BaseModel):
    """The `token_id_capture` block of a configuration that has it enabled (CONTRACT 15.3)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    folder: str
    all_agents: bool = False
    rebuild_response: bool = True
    allow_unresolved_continuations: bool = False
    max_mask_fraction: float | None = None
    mask_fraction_min_samples: int = 50


class RaySettings(BaseModel):
    """The keys about Ray (docs/ray.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    address: str | None = None
    """`ray_head_node_address`: a cluster that is there already. None: containers of the project's own."""
    workers: int = 1
    """Worker containers beside the head container."""
    dashboard_port: int | None = None
    """Where Ray's dashboard is published on loopback; None: it is off."""
    is_asked_for: bool = False
    """`--ray`: a project that does not use it is a mistake."""


class BuildSettings(BaseModel):
    """The `build` block (docs/images.md): how builds reach packages and the base image. None: not said."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ca_bundle: str | None = None
    ca_bundle_place: str = "build.ca_bundle"
    """Who says it, for a message."""
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    http_proxy: str | None = None
    https_proxy: str | None = None
    no_proxy: str | None = None
    base_image: str | None = None
    registry_mirror: str | None = None
    platform: str | None = None


class GlobalSettings(BaseModel):
    """The top-level keys of CONTRACT 1.14 that the host acts on, with their defaults."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    pool: Pool = Pool()
    http: HttpSettings = HttpSettings()
    is_head_masked: bool = True
    server_spinup_timeout_seconds: float | None = 600.0
    """None: no bound."""
    model_endpoint_readiness_timeout_seconds: float | None = 600.0
    """None: the check is skipped."""
    start_anyway: bool = False
    nemo_gym_relays: bool = False
    """Servers are started though something that they need is not there."""
    verbose: bool = False
    is_observed: bool = False
    call_capture: str | None = None
    """The folder of recorded model calls; set when `is_observed`."""
    token_capture: TokenCapture | None = None
    ray: RaySettings = RaySettings()
    build: BuildSettings = BuildSettings()

    @property
    def capture_folders(self) -> tuple[str, ...]:
        """Absolute folders in which model servers write and the collector reads."""
        tokens = None if self.token_capture is None else self.token_capture.folder
        return tuple(dict.fromkeys(folder for folder in (self.call_capture, tokens) if folder is not None))


@dataclass(frozen=True, slots=True)
class Config:
    """Everything above `config` reads this and nothing else. Made once, in `cli/`."""

    project: str
    """^[a-z0-9][a-z0-9_-]*[a-z0-9]$, at most 63 characters, unique per folder and selection."""
    servers: Mapping[str, ServerBlock]
    """In config order."""
    head_host: str
    head_port: int
    document: Mapping[str, Any]
    """The whole merged config, resolved, ports filled in (host view), secrets in clear."""
    settings: GlobalSettings
    datasets: tuple[Dataset, ...]
    files: tuple[Path, ...]
    search_roots: tuple[Path, ...]
    origins: Mapping[str, Origin]
    """By dotted key of each leaf (last writer)."""
    writers: Mapping[str, tuple[Write, ...]] = field(default_factory=dict)
    """By dotted key of each leaf: all writers, the winner last."""
    secrets: frozenset[str] = frozenset()
    """Clear text of every value that masking hides; for redaction by value in logs and messages."""
    unstartable: tuple[tuple[str, ConfigError], ...] = ()
    """What keeps a server from starting: fields that it needs and nobody set. Raised when one is started."""
    warnings: tuple[str, ...] = ()
    """Without secrets."""
    elsewhere: Mapping[str, Address] = field(default_factory=dict)
    """Servers that others start: blocks with `host` and `port` and without `entrypoint`, as the host dials
    them."""
    includes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the name of a config file: the files that it includes, at any depth."""

    @property
    def skills_folder(self) -> Path | None:
        """The folder that `skills.path` names, as rows are stamped with it; None when it is not there."""
        skills = self.document.get("skills")
        name = skills.get("path") if isinstance(skills, Mapping) else None
        if not isinstance(name, str) or not name:
            return None
        places = (Path(name), *(root / name for root in self.search_roots))
        return next((place.resolve() for place in places if place.is_dir()), None)

    def only(self, names: Collection[str], project: str) -> Config:
        """A project of some of the servers, under a name of its own."""
        return replace(
            self,
            project=project,
            servers={name: block for name, block in self.servers.items() if name in names},
            document={
                key: value for key, value in self.document.items() if key in names or key not in self.servers
            },
            unstartable=tuple(pair for pair in self.unstartable if pair[0] in names),
        )
