"""Where the head is, by env.yaml and the command line alone: for commands that read no configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymctl.config.sources import Selection

KEYS = ("head_server", "default_host", "use_absolute_ip")


def said(selection: Selection) -> str | None:
    """The head's URL; None when neither says anything. Raises ConfigError."""
    from gymctl.config import ports
    from gymctl.config.model import Origin
    from gymctl.config.sources import bare
    from gymctl.config.tree.origins import Origins

    document = bare(selection, keys=KEYS).document
    if not document:
        return None
    origins = Origins(dict.fromkeys(KEYS, Origin("command line or env.yaml")))
    host, port = ports.head_address(document, ports.default_host(document, origins), origins)
    return f"http://{ports.LOOPBACK if host == '0.0.0.0' else host}:{port}"
