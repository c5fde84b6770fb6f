"""How a server's container is fenced in (DESIGN D11).

    closed   ours: a read-only file system but for /tmp, one fixed command
    compat   NeMo Gym's own, written for a virtual environment of their user's: they write beside their code,
             into the container's own layer, and run their own app.py

Both run as a plain user without capabilities, with limits, published on loopback. A block of the second kind
that needs root says `resources: {user: root}`, and may install packages then.
"""

from __future__ import annotations

from dataclasses import dataclass

from gymctl.compose.limits import runs_as_root
from gymctl.config.model import ServerBlock
from gymctl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Profile:
    """What differs from one kind of container to the other."""

    name: str = "closed"
    command: tuple[str, ...] = ("python", "-m", "gymctl.servers")
    is_read_only: bool = True
    may_reach_host: bool = False
    """Knows the host by name, whatever its kind: foreign code may dial what its block names."""
    user: str | None = None
    """None: the project's own."""
    capabilities: tuple[str, ...] | None = None


CLOSED = Profile()
ROOT_MAY = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""What root means among files and users; without it, it could not even read a part file of another user's."""


def profile_of(block: ServerBlock) -> Profile:
    is_root = runs_as_root(block.settings)
    if block.family == "gymctl":
        if is_root:
            raise ConfigError(
                f"`{block.name}` is built on gymctl's SDK, whose servers do not run as root",
                where=f"{block.name}…resources.user",
            )
        return CLOSED
    return Profile(
        name="compat, root" if is_root else "compat",
        command=("python", block.entrypoint),
        is_read_only=False,
        may_reach_host=True,
        user="0:0" if is_root else None,
        capabilities=ROOT_MAY if is_root else None,
    )
