"""A document as YAML text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

_WIDTH = 110


def as_yaml(document: Mapping[str, Any], *, width: int = _WIDTH) -> str:
    """Block style, keys in their order; by libyaml's emitter, ten times faster for long texts."""
    dumper: Any = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    return yaml.dump(dict(document), Dumper=dumper, sort_keys=False, allow_unicode=True, width=width)
