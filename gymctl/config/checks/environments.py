"""What the built-in environment servers accept in their block (CONTRACT 7.1), told before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Real

from gymctl.config.checks.instances import Instance, is_whole
from gymctl.config.problems import Problems
from gymctl.config.tree.origins import Origins
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


def check(instances: Iterable[Instance], origins: Origins, problems: Problems) -> None:
    for instance in instances:
        if instance.kind == "environment_servers" and instance.implementation in ALLOWED:
            for key, error in _problems(instance, origins):
                problems.add(error, *instance.path, key)
            if instance.implementation == "legacy_agent" and not instance.is_generated:
                for key in _LIMITS:
                    if instance.settings.get(key) is not None:
                        problems.warn(
                            f"`{instance.name}.{key}` has no effect: legacy_agent relays without limits"
                        )


def _problems(instance: Instance, origins: Origins) -> Iterator[tuple[str, ConfigError]]:
    """Which key is wrong, and the error that says so."""
    settings = instance.settings
    is_legacy = instance.implementation == "legacy_agent"
    required = (
        ["agent_server"] if is_legacy else ["agent_server", "resources_server", "cleanup_timeout_seconds"]
    )
    for key in required:
        if settings.get(key) is None:
            yield _wrong(instance, key, "is required", origins)
    for key in _LIMITS:
        value = settings.get(key)
        is_number = is_whole(value) if key == "max_concurrent_episodes" else _is_number(value)
        if value is not None and not (is_number and value > 0):
            yield _wrong(instance, key, f"must be a number above 0, got `{value}`", origins)
    episodes = settings.get("max_concurrent_episodes")
    if isinstance(episodes, int) and episodes > 0 and settings.get("queue_timeout_seconds") is None:
        yield _wrong(
            instance, "queue_timeout_seconds", "is required when max_concurrent_episodes is set", origins
        )
    transports = settings.get("resources_tool_transports") or ()
    for transport in transports if isinstance(transports, (list, tuple)) else [transports]:
        if transport not in ("direct_http", "mcp"):
            problem = f"may hold direct_http and mcp, got `{transport}`"
            yield _wrong(instance, "resources_tool_transports", problem, origins)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _wrong(instance: Instance, key: str, problem: str, origins: Origins) -> tuple[str, ConfigError]:
    where = origins.where(*instance.path, key) or origins.where(*instance.path)
    return key, ConfigError(f"`{instance.name}`: `{key}` {problem}", where=where)
