"""What the configuration says of recorded model calls, as the collector takes it."""

from __future__ import annotations

from pathlib import Path

from gymctl.config.model import Config
from gymctl.rollouts.captures import Captures
from gymctl.rollouts.tokens import Tokens


def captures(config: Config | None) -> Captures | None:
    """None when nothing is recorded, or only a running head knows (--no-serve without a configuration)."""
    folder = None if config is None else config.settings.call_capture
    tokens = None if config is None else _tokens(config)
    if folder is None and tokens is None:
        return None
    return Captures(None if folder is None else Path(folder), tokens)


def _tokens(config: Config) -> Tokens | None:
    asked = config.settings.token_capture
    if asked is None:
        return None
    agents = {
        name
        for name, block in config.servers.items()
        if block.kind == "responses_api_agents"
        and (asked.all_agents or block.settings.get("token_id_capture") is True)
    }
    servers = frozenset(
        name
        for name, block in config.servers.items()
        if block.kind == "environment_servers" and any(call.name in agents for call in block.calls)
    )
    return Tokens(
        Path(asked.folder),
        servers,
        rebuilds=asked.rebuild_response,
        allow_unresolved=asked.allow_unresolved_continuations,
        max_mask_fraction=asked.max_mask_fraction,
        min_samples=asked.mask_fraction_min_samples,
    )
