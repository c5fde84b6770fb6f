"""Why did a server stop? From its exit code and its last lines to a message that says what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from gymctl.compose import ray
from gymctl.compose.names import HEAD
from gymctl.config.model import Config
from gymctl.config.tree.masking import redact
from gymctl.errors import ServerError
from gymctl.runtime.stack import ServerDeath

SHOWN_LINES = 20

_PORT_TAKEN = re.compile(r"cannot listen on \S+:(\d+): address already in use", re.IGNORECASE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NODE_TOO_SLOW = re.compile(r"current node timed out during startup")
"""Ray's own limit of 30 s, which nothing changes; its containers try three times."""
_NO_SPACE = re.compile(r"no space left on device", re.IGNORECASE)


def taken_port(lines: Iterable[str]) -> int | None:
    """The port that a server could not listen on (what its own code wanted beside it is not meant)."""
    found = (_PORT_TAKEN.search(line) for line in lines)
    return next((int(match[1]) for match in found if match), None)


def died_early(death: ServerDeath, config: Config, *, seconds: float, where: str) -> ServerError:
    """A server stopped before it was ready: the reason, who waited for it, its last lines."""
    waiting = waiting_for(death.server, config)
    details = [f"{name} needs it" for name in waiting[:3]]
    details += log_tail(death.server, death.last_lines, config.secrets)
    return ServerError(
        f"`{death.server}` stopped before it was ready ({cause(death)} after {seconds:.1f} s)",
        where=where,
        details=details,
        hint=hint(death, config),
    )


def died(death: ServerDeath, config: Config, *, where: str | None = None) -> ServerError:
    """A server stopped while it was in use."""
    return ServerError(
        f"`{death.server}` stopped ({cause(death)})",
        where=where,
        details=log_tail(death.server, death.last_lines, config.secrets),
        hint=hint(death, config),
    )


def cause(death: ServerDeath) -> str:
    if death.was_out_of_memory:
        return "out of memory"
    if death.exit_code is None:
        return "exit code unknown"
    if death.exit_code > 128:
        return f"exit {death.exit_code}, killed by signal {death.exit_code - 128}"
    return f"exit {death.exit_code}"


def hint(death: ServerDeath, config: Config) -> str | None:
    """What most likely helps, where the last lines tell."""
    server = ray.owner(config, death.server)
    block = config.servers.get(server)
    text = "\n".join(death.last_lines)
    if death.was_out_of_memory:
        return f"give it more: `resources: {{memory: 4g}}` in the block of `{server}`"
    missing = _NO_MODULE.search(text)
    if missing and block is not None:
        return f"add the package of `{missing[1]}` to {block.folder / 'requirements.txt'}"
    if _NODE_TOO_SLOW.search(text):
        return (
            "the machine is too busy: a node of Ray has 30 s to start; run it again when there is less to do"
        )
    if _NO_SPACE.search(text):
        return "make room on the disk; `docker system df` shows what images and containers take"
    if death.exit_code in (0, 143):
        return "it ended by itself or was stopped from outside; a server must keep running"
    return None


def waiting_for(server: str, config: Config) -> list[str]:
    """The servers that call `server`, directly or through others, nearest first."""
    found = [name for cluster in ray.clusters(config) if server in cluster.nodes for name in cluster.servers]
    wanted = [server, *found]
    while wanted:
        called = wanted.pop(0)
        for name, block in config.servers.items():
            if name not in found and any(reference.name == called for reference in block.calls):
                found.append(name)
                wanted.append(name)
    return [name for name in found if name not in (server, HEAD)]


def log_tail(server: str, lines: Sequence[str], secrets: Collection[str]) -> list[str]:
    """The last lines, indented below a heading, without secrets and without the server's own prefix."""
    if not lines:
        return [f"{server} has written no log line"]
    prefix = f"({server}) "
    shown = [redact(line, secrets).removeprefix(prefix) for line in lines[-SHOWN_LINES:]]
    return [f"last lines of {server}:", *(f"  {line}" for line in shown)]
