"""What a server is called inside the network: instance ids become unique, legal host names."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

HEAD = "head"
RESERVED = frozenset({HEAD, "localhost"})
_OF_RAY = re.compile(r"ray(-\d+)?-(head|worker-\d+)")
"""What compose/ray.py calls its containers."""
MAX_LENGTH = 63
"""A DNS label."""


def service_names(instance_ids: Iterable[str]) -> dict[str, str]:
    """A service name for each instance id: `weather_agent` -> `weather-agent`.

    Ids that would share a name, or take a reserved one, all get a short hash of their id, so that a name does
    not depend on the order of the config.
    """
    ids = list(dict.fromkeys(instance_ids))
    plain = {name: legal(name) for name in ids}
    count = Counter(plain.values())
    unique = {name: base for name, base in plain.items() if count[base] == 1 and not _is_reserved(base)}
    taken = set(unique.values()) | RESERVED
    names: dict[str, str] = {}
    for name in ids:
        names[name] = unique.get(name) or _hashed(name, plain[name], taken)
        taken.add(names[name])
    return names


def _is_reserved(name: str) -> bool:
    return name in RESERVED or _OF_RAY.fullmatch(name) is not None


def legal(text: str) -> str:
    """`text` as a DNS label that starts with a letter: `1` or `0x7f` would be read as IPv4 addresses."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not label or not label[0].isalpha():
        label = f"s-{label}".rstrip("-")
    return label[:MAX_LENGTH].rstrip("-")


def _hashed(name: str, base: str, taken: set[str]) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(6, 41):
        candidate = f"{base[: MAX_LENGTH - 1 - length].rstrip('-')}-{digest[:length]}"
        if candidate not in taken:
            return candidate
    raise ValueError(f"no free service name for {name!r}")  # 35 names taken on purpose; not by chance
