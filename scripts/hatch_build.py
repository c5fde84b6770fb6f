"""Put the bundled folders into a wheel. An editable install finds them beside the package instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLED = ("server_images", "templates", "compose", "benchmarks", "scripts", "Dockerfile.base")
LEFT_OUT = {"__pycache__", "tests", "conftest.py", "hatch_build.py", "env.yaml"}


class BundleHook(BuildHookInterface[Any]):
    """Adds every bundled file under gymctl/_bundled/; no tests, caches, or files that may hold keys."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        for name in BUNDLED:
            top = root / name
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                place = path.relative_to(root)
                is_hidden = any(part.startswith(".") for part in place.parts)
                if path.is_file() and not is_hidden and not LEFT_OUT.intersection(place.parts):
                    relative = place.as_posix()
                    build_data["force_include"][str(path)] = f"gymctl/_bundled/{relative}"
