"""What the servers of a command run in, with what only its configuration knows: the packages of processes."""

from __future__ import annotations

from gymctl.config.model import Config
from gymctl.rollouts import surroundings
from gymctl.rollouts.passport import Surroundings
from gymctl.runtime import envs
from gymctl.runtime.stack import Stack


async def look(stack: Stack | None, config: Config | None) -> Surroundings:
    """As `rollouts.surroundings.look`."""
    is_local = stack is not None and stack.runtime == "process" and config is not None
    return await surroundings.look(stack, environments_of(config) if is_local and config is not None else {})


def environments_of(config: Config) -> dict[str, str]:
    """Process runtime: by server, the digest of what its packages are installed from."""
    return {name: recipe.key for recipe in envs.recipes(config) for name in recipe.servers}
