"""What a container may use: a block's optional `resources: {memory, cpus, pids, gpus}`, and the defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gymctl.errors import ConfigError

KEY = "resources"
FIELDS = ("memory", "cpus", "pids", "gpus", "user")
ALL = "all"
ROOT = "root"
SMALLEST_MEMORY = 64 * 1024**2
"""A Python server needs about 40 MiB; the engine itself refuses less than 6."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


@dataclass(frozen=True, slots=True)
class Limits:
    """CPUs are not limited by default: servers share the machine, and a model server needs what there is."""

    memory: str = "2g"
    cpus: float | None = None
    pids: int = 1024
    gpus: int | Literal["all"] | None = None
    """How many of the engine's GPUs; none unless a block asks for some."""


def declares(settings: Mapping[str, Any]) -> bool:
    """Whether a block's `resources` is ours. Without any of our fields it belongs to the implementation."""
    value = settings.get(KEY)
    if not isinstance(value, Mapping):
        return False
    return any(field in value for field in FIELDS[:4]) or value.get("user") == ROOT


def runs_as_root(settings: Mapping[str, Any]) -> bool:
    """Whether a block asks for it: `resources: {user: root}`."""
    return declares(settings) and settings[KEY].get("user") == ROOT


def gpus(settings: Mapping[str, Any]) -> object:
    """What a block asks for, unchecked: `resources: {gpus: 1}`; None when it asks for none."""
    return settings[KEY].get("gpus") if declares(settings) else None


def limits(server: str, settings: Mapping[str, Any], *, host_cpus: int) -> Limits:
    """The limits of one server. Raises ConfigError with the key of a value that cannot be used."""
    if not declares(settings):
        return Limits()
    asked: Mapping[str, Any] = settings[KEY]
    unknown = sorted(set(map(str, asked)) - set(FIELDS))
    if unknown:
        raise ConfigError(
            f"`{KEY}` does not know {', '.join(f'`{name}`' for name in unknown)}",
            where=f"{server}…{KEY}",
            hint=f"allowed: {', '.join(FIELDS)}",
        )
    if asked.get("user") not in (None, ROOT):
        raise ConfigError(
            f"`user` may be `root` or left out, got {asked['user']!r}", where=f"{server}…{KEY}.user"
        )
    defaults = Limits()
    memory, cpus, pids = (asked.get(field) for field in FIELDS[:3])
    return Limits(
        memory=defaults.memory if memory is None else _memory(server, memory),
        cpus=None if cpus is None else min(_positive(server, "cpus", cpus, float), float(host_cpus)),
        pids=defaults.pids if pids is None else _positive(server, "pids", pids, int),
        gpus=_gpus(server, asked.get("gpus")),
    )


def _gpus(server: str, value: object) -> int | Literal["all"] | None:
    if value is None:
        return None
    if value == ALL:
        return "all"
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**10:
        raise ConfigError(
            f"`gpus` must be a number of GPUs or `all`, got {value!r}", where=f"{server}…{KEY}.gpus"
        )
    return value


def _memory(server: str, value: object) -> str:
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size < SMALLEST_MEMORY:
        raise ConfigError(
            f"`memory` must be a size of at least 64m, such as `512m` or `2g`, got {value!r}",
            where=f"{server}…{KEY}.memory",
        )
    return f"{size}b"


def in_bytes(memory: str) -> int:
    """Bytes of a limit's `memory`, as `limits` returns it."""
    match = _SIZE.fullmatch(memory)
    assert match is not None, memory
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _positive(server: str, field: str, value: object, kind: type) -> Any:
    try:
        number = kind(value) if not isinstance(value, bool) else 0  # type: ignore[call-arg]
    except (TypeError, ValueError):
        number = 0
    if not 0 < number < 2**31:
        raise ConfigError(
            f"`{field}` must be a positive number, got {value!r}", where=f"{server}…{KEY}.{field}"
        )
    return number
