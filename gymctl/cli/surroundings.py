"""What a run's servers run in, for its passport: images, limits that hold, engine, compose file, clock."""

from __future__ import annotations

import ctypes

from gymctl.config.model import Config
from gymctl.rollouts.passport import ServerSeen, Surroundings
from gymctl.rollouts.seal import COMPOSE
from gymctl.runtime import envs
from gymctl.runtime.stack import ServerFacts, Stack

_TIMEX_BYTES = 256
_TIME_ERROR = 5


async def look(stack: Stack | None, config: Config | None) -> Surroundings:
    """`stack` is None when only a head is known: then it tells of the clock alone."""
    clock = is_clock_synchronized()
    if stack is None:
        return Surroundings(is_clock_synchronized=clock)
    facts = await stack.facts()
    is_local = stack.runtime == "process" and config is not None
    environments = environments_of(config) if is_local and config is not None else {}
    return Surroundings(
        servers={name: _seen(one, environments.get(name)) for name, one in sorted(facts.servers.items())},
        runtime=stack.runtime,
        engine=facts.engine,
        compose=facts.compose,
        is_clock_synchronized=clock,
        documents={} if facts.compose_text is None else {COMPOSE: facts.compose_text},
    )


def environments_of(config: Config) -> dict[str, str]:
    """Process runtime: by server, the digest of what its packages are installed from."""
    return {name: recipe.key for recipe in envs.recipes(config) for name in recipe.servers}


def _seen(facts: ServerFacts, environment: str | None) -> ServerSeen:
    limits = facts.limits
    return ServerSeen(
        image=facts.image,
        id=facts.image_id,
        digest=facts.digest,
        environment=environment,
        profile=facts.profile,
        cgroup=limits.cgroup,
        memory_bytes=limits.memory_bytes,
        cpus=limits.cpus,
        pids=limits.pids,
    )


def is_clock_synchronized() -> bool | None:
    """By the kernel's own word (adjtimex); None where it cannot be asked."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
