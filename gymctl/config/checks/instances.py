"""Which top-level blocks are servers, and which only look like it (CONTRACT 1.1, 1.12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from gymctl.config.names import close, slip, suggestion
from gymctl.config.problems import Problems
from gymctl.config.tree.masking import mask
from gymctl.config.tree.origins import Origins, Path
from gymctl.config.tree.writing import as_yaml
from gymctl.contract.servers import KINDS, Address, ServerKind
from gymctl.errors import AlmostServerError, NoServerInstancesError

DOMAINS = (
    "math",
    "coding",
    "agent",
    "knowledge",
    "instruction_following",
    "long_context",
    "safety",
    "games",
    "translation",
    "e2e",
    "rlhf",
    "other",
)
_LONGEST_ID = 200
_PORT_DIGITS = 5
UNKNOWN_PORT = -1
"""What a configuration holds before ports are allocated (CONTRACT 1.13); a printed one may be read again."""


Mistake = tuple[str, Path]
"""What is wrong with a block, and where in it."""


@dataclass(frozen=True)
class Instance:
    """One server block. `settings` is the level-3 block itself, not a copy."""

    name: str
    kind: ServerKind
    implementation: str
    settings: dict[str, Any]
    is_generated: bool = False

    @property
    def path(self) -> tuple[str, str, str]:
        return self.name, self.kind, self.implementation


def find(
    document: dict[str, Any], reserved: frozenset[str], origins: Origins, problems: Problems
) -> list[Instance]:
    """Every valid server block in document order. Blocks that are servers but for a mistake are reported."""
    found: list[Instance] = []
    almost: dict[str, list[Mistake]] = {}
    for name, block in document.items():
        if name in reserved or not isinstance(block, dict) or not any(kind in block for kind in KINDS):
            continue
        mistakes = _mistakes(name, block, origins)
        if not mistakes:
            kind = cast(ServerKind, next(key for key in block if key in KINDS))
            document[name] = block if next(iter(block)) == kind else {kind: block[kind], **block}
            implementation = next(iter(block[kind]))
            found.append(Instance(name, kind, implementation, block[kind][implementation]))
            _warn_of_strays(found[-1], block, origins, problems)
        elif _has_entrypoint(block):
            almost[name] = mistakes
        elif _elsewhere(name, block) is not None and not _meant("entrypoint", block):
            continue
        else:
            problems.warn(
                f"`{name}` is ignored: it names a server type but has no `entrypoint`"
                f" ({origins.where(name)}){_meant('entrypoint', block)}"
            )
    _report(almost, document, origins, problems)
    return found


def elsewhere(document: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, Address]:
    """Servers that somebody else starts: a block with `host` and `port` and without `entrypoint`."""
    found = {
        name: _elsewhere(name, block)
        for name, block in document.items()
        if name not in reserved and isinstance(block, dict) and not _has_entrypoint(block)
    }
    return {name: address for name, address in found.items() if address is not None}


def refuse_empty(found: list[Instance], files: int, problems: Problems) -> None:
    """A configuration without servers, unless that follows from a mistake in one."""
    if not found and not problems.errors:
        what = "no configuration was named" if files == 0 else "the configuration starts no server"
        error = NoServerInstancesError(
            what,
            hint="name a benchmark (`gymctl eval arithmetic`), or give --config FILE, --environment NAME",
        )
        problems.add(error)


def kinds(instances: Iterable[Instance]) -> dict[str, ServerKind]:
    return {instance.name: instance.kind for instance in instances}


def names(document: Mapping[str, Any], found: list[Instance], problems: Problems) -> dict[str, ServerKind]:
    """Every server; also blocks that mean to be one, when their mistakes have been reported."""
    if not any(isinstance(error, AlmostServerError) for error in problems.errors):
        return kinds(found)
    return {
        name: kind
        for name, block in document.items()
        if isinstance(block, dict)
        for kind in KINDS
        if kind in block
    }


def _elsewhere(name: str, block: Mapping[str, Any]) -> Address | None:
    kinds: list[ServerKind] = [kind for kind in KINDS if kind in block]
    inner = block[kinds[0]] if len(kinds) == 1 else None
    if not isinstance(inner, dict) or len(inner) != 1 or not name.strip():
        return None
    implementation, settings = next(iter(inner.items()))
    if not isinstance(settings, dict) or not isinstance(settings.get("host"), str):
        return None
    port = as_port(settings.get("port"))
    if port is None or not settings["host"]:
        return None
    return Address(kind=kinds[0], implementation=str(implementation), host=settings["host"], port=port)


def _report(
    almost: Mapping[str, list[Mistake]], document: Mapping[str, Any], origins: Origins, problems: Problems
) -> None:
    is_error = document.get("error_on_almost_servers", True) is not False
    for name, ((text, path), *others) in almost.items():
        where = origins.where(name, *path) or origins.where(name)
        if not is_error:
            problems.warn(f"not started, because it is no valid server: `{name}`: {text} ({where})")
            continue
        error = AlmostServerError(
            f"`{name}` looks like a server and is not valid: {text}",
            where=where,
            details=[*_also(name, others, origins), *_shown({name: document[name]})],
            hint="correct it, or set error_on_almost_servers=false to leave it out",
        )
        problems.add(error, name, *path)


def _also(name: str, others: list[Mistake], origins: Origins) -> Iterator[str]:
    for text, path in others:
        yield f"also: {text} ({origins.where(name, *path) or origins.where(name)})"


def _warn_of_strays(
    instance: Instance, block: Mapping[str, Any], origins: Origins, problems: Problems
) -> None:
    """A key beside the server type is allowed, as in the peer, and reaches nobody."""
    for key in block:
        if key == instance.kind:
            continue
        near = close(str(key), KINDS)
        meant = near[0] if near else ".".join((*instance.path, str(key)))
        problems.warn(
            f"`{instance.name}.{key}` reaches no server: it stands beside `{instance.kind}`"
            f" ({origins.where(instance.name, key)}); did you mean `{meant}`?"
        )


def _shown(blocks: Mapping[str, Any]) -> list[str]:
    return as_yaml(mask(blocks)).splitlines()


def _has_entrypoint(value: object) -> bool:
    if isinstance(value, dict):
        return "entrypoint" in value or any(_has_entrypoint(child) for child in value.values())
    return isinstance(value, list) and any(_has_entrypoint(child) for child in value)


def _mistakes(name: str, block: dict[str, Any], origins: Origins) -> list[Mistake]:
    """Why this block is no server; nothing when it is one."""
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_ID:
        return [(f"a server id must be printable text of at most {_LONGEST_ID} characters", ())]
    kinds: list[ServerKind] = [kind for kind in KINDS if kind in block]
    if len(kinds) > 1:
        return [(f"it has two server types, {' and '.join(kinds)}", (kinds[1],))]
    inner = block[kinds[0]]
    if not isinstance(inner, dict) or len(inner) != 1:
        return [_not_one(name, kinds[0], inner, origins)]
    implementation, settings = next(iter(inner.items()))
    path = (kinds[0], implementation)
    if not isinstance(implementation, str) or not _is_folder_name(implementation):
        return [(f"the implementation `{implementation}` is no folder name", path)]
    if not isinstance(settings, dict):
        return [(f"`{implementation}` must be a mapping", path)]
    return [(text, (*path, key)) for key, text in _settings_problems(kinds[0], settings)]


def _not_one(name: str, kind: ServerKind, inner: object, origins: Origins) -> Mistake:
    rule = f"`{kind}` must hold exactly one implementation"
    if not isinstance(inner, dict) or not inner:
        return f"{rule}, got {'none' if not inner else 'a list' if isinstance(inner, list) else inner}", (
            kind,
        )
    places = [
        f"`{key}` ({place})" if (place := origins.where(name, kind, key)) else f"`{key}`" for key in inner
    ]
    last = next(reversed(inner))
    return f"{rule}, got {len(inner)}: {', '.join(places)}; files are merged, so leave one out", (kind, last)


def _meant(wanted: str, value: object) -> str:
    """`; did you mean it by …?` where a mapping in `value` holds something almost called so."""
    for key, child in value.items() if isinstance(value, dict) else ():
        if slip(key, (wanted,)):
            return f"; did you mean it by `{key}`?"
        if meant := _meant(wanted, child):
            return meant
    return ""


def _is_folder_name(name: str) -> bool:
    """Also of a folder in a folder: `family/member`."""
    is_plain = "\\" not in name and name.isprintable()
    return is_plain and all(part not in ("", ".", "..") for part in name.split("/"))


def _settings_problems(kind: ServerKind, settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Which field is wrong, and why."""
    entrypoint = settings.get("entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint:
        yield "entrypoint", f"`entrypoint` is required{_meant('entrypoint', settings)}"
    elif PurePosixPath(entrypoint).is_absolute() or ".." in PurePosixPath(entrypoint).parts:
        yield "entrypoint", f"`entrypoint` must lie in the server folder, got `{entrypoint}`"
    domain = settings.get("domain")
    if domain is None and kind == "resources_servers":
        yield "domain", f"`domain` is required for resources servers{_meant('domain', settings)}"
    elif domain is not None and domain not in DOMAINS:
        hint = suggestion(str(domain), DOMAINS, noun="allowed")
        yield "domain", f"`domain` is unknown: `{domain}` ({hint})"
    workers = settings.get("num_workers")
    if workers is not None and (not is_whole(workers) or workers < 1):
        yield "num_workers", f"`num_workers` must be at least 1, got `{workers}`"
    port = settings.get("port")
    if port not in (None, UNKNOWN_PORT, 0) and as_port(port) is None:
        yield "port", f"`port` must be a number from 1 to 65535, got `{port}`"
    host = settings.get("host")
    if host is not None and not isinstance(host, str):
        yield "host", f"`host` must be text, got `{host}`"


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def as_port(value: object) -> int | None:
    """A port number, also when written as text; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _PORT_DIGITS:
        value = int(value)
    return value if isinstance(value, int) and is_whole(value) and 1 <= value <= 65535 else None
