"""`gym --version [--json]`: the shape that clients of the peer read (CONTRACT 12.3)."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata

from gymctl import __version__
from gymctl.paths import PACKAGE

SPOKEN = "0.7.0"
"""The NeMo Gym generation whose contract we keep."""


def version(*, as_json: bool) -> str:
    if not as_json:
        return f"gymctl {__version__} (NeMo Gym {SPOKEN} contract)"
    facts = {
        "nemo_gym": SPOKEN,
        "gymctl": __version__,
        "python": platform.python_version(),
        "python_path": sys.executable,
        "installation_path": str(PACKAGE.parent),
        "dependencies": {name: _installed(name) for name in ("openai", "ray")},
        "system": {
            "os": f"{platform.system()} {platform.release()}",
            "platform": platform.platform(),
            "architecture": platform.machine(),
            "processor": platform.processor() or platform.machine(),
            "cpus": os.cpu_count(),
            "memory_gb": _memory(),
        },
    }
    return json.dumps(facts, indent=2)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
