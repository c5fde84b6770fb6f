"""What the configuration says of recorded model calls, as the collector takes it."""

from __future__ import annotations

from pathlib import Path

from gymctl.config.model import Config
from gymctl.rollouts.captures import Captures


def captures(config: Config | None) -> Captures | None:
    """None when nothing is recorded, or only a running head knows (--no-serve without a configuration)."""
    folder = None if config is None else config.settings.call_capture
    return None if folder is None else Captures(Path(folder))
