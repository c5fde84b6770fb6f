"""What the built-in environment servers accept in their block (CONTRACT 7.1), told before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Real

from gymctl.config.instances import Instance, is_whole
from gymctl.config.names import suggestion
from gymctl.config.origins import Origins
from gymctl.errors import ConfigError

_COMMON = {
    "entrypoint",
    "host",
    "port",
    "num_workers",
    "agent_server",
    "max_concurrent_episodes",
    "queue_timeout_seconds",
    "default_episode_timeout_seconds",
    "cleanup_timeout_seconds",
}
_TURN = _COMMON | {"resources_server", "resources_tool_transports"}
ALLOWED = {"legacy_agent": _COMMON, "single_agent_turn": _TURN, "single_agent_turn_legacy": _TURN}
_LIMITS = (
    "max_concurrent_episodes",
    "queue_timeout_seconds",
    "default_episode_timeout_seconds",
    "cleanup_timeout_seconds",
)


def check(instances: Iterable[Instance], origins: Origins, warn: Callable[[str], None]) -> None:
    for instance in instances:
        if instance.kind == "environment_servers" and instance.implementation in ALLOWED:
            _check_one(instance, origins, warn)


def _check_one(instance: Instance, origins: Origins, warn: Callable[[str], None]) -> None:
    settings, allowed = instance.settings, ALLOWED[instance.implementation]
    unknown = [key for key in settings if key not in allowed]
    if unknown:
        named = ", ".join(f"`{key}`" for key in unknown)
        raise ConfigError(
            f"`{instance.name}`: {instance.implementation} does not know {named}",
            where=origins.where(*instance.path, unknown[0]),
            hint=suggestion(str(unknown[0]), allowed, noun="allowed"),
        )
    is_legacy = instance.implementation == "legacy_agent"
    required = (
        ["agent_server"] if is_legacy else ["agent_server", "resources_server", "cleanup_timeout_seconds"]
    )
    for key in required:
        if settings.get(key) is None:
            raise _wrong(instance, key, "is required", origins)
    for key in _LIMITS:
        value = settings.get(key)
        is_number = is_whole(value) if key == "max_concurrent_episodes" else _is_number(value)
        if value is not None and not (is_number and value > 0):
            raise _wrong(instance, key, f"must be a number above 0, got `{value}`", origins)
        if is_legacy and value is not None and not instance.is_generated:
            warn(f"`{instance.name}.{key}` has no effect: legacy_agent relays without limits")
    if settings.get("max_concurrent_episodes") is not None and settings.get("queue_timeout_seconds") is None:
        raise _wrong(
            instance, "queue_timeout_seconds", "is required when max_concurrent_episodes is set", origins
        )
    for transport in settings.get("resources_tool_transports") or ():
        if transport not in ("direct_http", "mcp"):
            raise _wrong(
                instance,
                "resources_tool_transports",
                f"may hold direct_http and mcp, got `{transport}`",
                origins,
            )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _wrong(instance: Instance, key: str, problem: str, origins: Origins) -> ConfigError:
    where = origins.where(*instance.path, key) or origins.where(*instance.path)
    return ConfigError(f"`{instance.name}`: `{key}` {problem}", where=where)
