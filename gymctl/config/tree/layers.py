"""What one place says: a file, env.yaml or the command line, with the origin of each value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gymctl.config.tree.origins import OriginTree


@dataclass(frozen=True)
class Layer:
    """`name` is what users call the place; layers are merged in the order in which they win."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Any, OriginTree] = field(default_factory=dict)
