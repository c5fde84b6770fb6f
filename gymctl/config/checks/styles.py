"""Agents and resources servers of two styles do not go together: no rollout of such a pair can succeed.

One side seeds, calls tools and verifies; the other resets and steps. Known for servers on gymctl's SDK only;
the waiver of the other pairing gates counts here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymctl.config.checks.pairing import RESOURCES, is_waived
from gymctl.config.model import ServerBlock
from gymctl.config.problems import Problems
from gymctl.config.server_classes.server_class import ServerClasses
from gymctl.config.server_classes.styles import Style
from gymctl.config.tree.origins import Origins
from gymctl.errors import UnsupportedAgentPairingError

FIELD = "resources_server"
_AGENT: dict[Style, str] = {
    "steps": "plays step-style environments (`/reset`, `/step`)",
    "tools": "seeds, calls tools and verifies (`/seed_session`, `/verify`)",
}
_SERVER: dict[Style, str] = {
    "steps": "is step-style (`/reset`, `/step`)",
    "tools": "has tools and a verifier (`/seed_session`, `/verify`)",
}
_REMEDY: dict[Style, str] = {
    "steps": "a step-style environment is played by an agent such as gymnasium_agent (--agent-type"
    " gymnasium_agent)",
    "tools": "a server with tools and a verifier goes with an agent such as simple_agent (--agent-type"
    " simple_agent)",
}


def check(
    servers: Mapping[str, ServerBlock],
    document: Mapping[Any, Any],
    origins: Origins,
    environ: Mapping[str, str],
    classes: ServerClasses,
    problems: Problems,
) -> None:
    """Report every agent whose resources server is of the other style."""
    if is_waived(document, environ):
        return
    for agent in servers.values():
        reference = agent.settings.get(FIELD)
        name = reference.get("name") if isinstance(reference, dict) else None
        resources = servers.get(name) if isinstance(name, str) else None
        if agent.kind != "responses_api_agents" or resources is None or resources.kind != RESOURCES:
            continue
        played, offered = classes.of(agent).style, classes.of(resources).style
        if played is None or offered is None or played == offered:
            continue
        place = (*agent.path, FIELD)
        error = UnsupportedAgentPairingError(
            f"`{agent.name}` ({agent.implementation}) {_AGENT[played]}, and `{resources.name}`"
            f" ({resources.implementation}) {_SERVER[offered]}: no rollout can succeed",
            where=origins.where(*place) or origins.where(*agent.path),
            hint=f"{_REMEDY[offered]}; --allow-unsupported-pairing runs it nevertheless",
        )
        problems.add(error, *place)
