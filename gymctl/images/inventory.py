"""What is installed in a file system: Python distributions, dpkg packages, the release.

Runs in two places: inside an image, as a script for whatever Python 3.8 or later is there (`sbom.py` hands it
over as text, so it imports the standard library only), and here, for the files of an image without Python.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
from email.message import Message
from pathlib import Path

SITE_FOLDERS = ("site-packages", "dist-packages")
# What the engine mounts into a container, and what nothing is installed to.
_NOT_OF_THE_IMAGE = ("/proc", "/sys", "/dev", "/tmp")
_DPKG_KEYS = ("Package", "Version", "Architecture", "Source")


def main() -> None:
    """Write the inventory of the file system that this runs in, as one line of JSON."""
    unread: list[str] = []
    folders = site_folders("/", unread)
    found = {
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "distributions": [one for folder in folders for one in distributions(folder)],
        "dpkg": dpkg_packages(_dpkg_texts("/", unread)),
        "release": release(_release_text("/")),
        "unread": sorted(unread),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def site_folders(root: str, unread: list[str]) -> list[str]:
    """Every site-packages and dist-packages below `root`; what cannot be opened is added to `unread`."""

    def refused(error: OSError) -> None:
        unread.append(str(error.filename))

    found: list[str] = []
    for folder, children, _ in os.walk(root, onerror=refused):
        if Path(folder).name in SITE_FOLDERS:
            found.append(folder)
            children.clear()  # a package's own copies of others are part of that package
        else:
            children[:] = [c for c in children if f"{folder.rstrip('/')}/{c}" not in _NOT_OF_THE_IMAGE]
    return sorted(found)


def distributions(folder: str) -> list[dict[str, object]]:
    """The distributions of one environment's folder, as `pip list` counts them: the first of each name."""
    found: dict[str, dict[str, object]] = {}
    for one in importlib.metadata.distributions(path=[folder]):
        about: Message = one.metadata  # type: ignore[assignment]
        name = about.get("Name")
        if name and _plain(name) not in found:
            found[_plain(name)] = {
                "name": name,
                "version": about.get("Version") or "",
                "folder": folder,
                "expression": about.get("License-Expression") or "",
                "license": about.get("License") or "",
                "classifiers": [c for c in about.get_all("Classifier") or [] if c.startswith("License ::")],
            }
    return [found[name] for name in sorted(found)]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dpkg_packages(texts: list[str]) -> list[dict[str, str]]:
    """The installed packages that dpkg status files name (deb822): `Package`, `Version`, `Architecture`,
    `Source`. A file of `status.d` (distroless images) has no `Status`: what it names is installed."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for text in texts:
        for paragraph in text.split("\n\n"):
            fields = [
                line.partition(":") for line in paragraph.splitlines() if not line.startswith((" ", "\t"))
            ]
            values = {key: value.strip() for key, _, value in fields}
            if values.get("Package") and values.get("Status", "- - installed").endswith(" installed"):
                kept = {key: values.get(key, "") for key in _DPKG_KEYS}
                found[kept["Package"], kept["Architecture"]] = kept
    return [found[key] for key in sorted(found)]


def _dpkg_texts(root: str, unread: list[str]) -> list[str]:
    folder = Path(root, "var/lib/dpkg")
    more = sorted(file for file in folder.glob("status.d/*") if file.suffix != ".md5sums")
    texts: list[str] = []
    for file in [folder / "status", *more]:
        try:
            texts.append(file.read_text("utf-8", "replace"))
        except FileNotFoundError:
            pass
        except OSError:
            unread.append(str(file))
    return texts


def release(text: str) -> dict[str, str]:
    """The keys of an os-release file."""
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def _release_text(root: str) -> str:
    for place in ("etc/os-release", "usr/lib/os-release"):
        try:
            return Path(root, place).read_text("utf-8", "replace")
        except OSError:
            continue
    return ""


if __name__ == "__main__":
    main()
