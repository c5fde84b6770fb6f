"""A resolved config as keys and values that can be compared and kept: the same on both sides.

Pure standard library: it runs in gymctl's tests and in the interpreter of NeMo Gym.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

IGNORED = frozenset(
    (
        "disallowed_ports",  # gymctl fills it when ports are allocated, right before a start
        "head_server_deps",  # pins of the interpreter that the peer runs in
        "python_version",  # that interpreter
        "uv_lock_timeout_seconds",  # of UV_LOCK_TIMEOUT of the machine
    )
)
"""Top-level keys that cannot be equal. Everything else is compared; folders by their place (`<work>`)."""

_PLAIN = re.compile(r"[!-~]{0,60}", re.ASCII)


def kept(value: Any, places: Mapping[str, str]) -> Any:
    """`value` with every text as it is (short, without blanks) or as a digest, and machine paths replaced."""
    if isinstance(value, dict):
        return {_key(key, places): kept(child, places) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [kept(child, places) for child in value]
    return _text(value, places) if isinstance(value, str) else value


def document(config: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """A whole resolved config, without what cannot be equal."""
    return kept({key: value for key, value in config.items() if key not in IGNORED}, places)


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """One line for each leaf that differs, like `a.b[0]: peer 1, gymctl 2`."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            here = f"{path}.{key}" if path else key
            if key not in ours:
                yield f"{here}: peer {_short(theirs[key])}, gymctl has no such key"
            elif key not in theirs:
                yield f"{here}: gymctl {_short(ours[key])}, the peer has no such key"
            else:
                yield from differences(theirs[key], ours[key], here)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(their, our, f"{path}[{index}]")
    elif type(theirs) is not type(ours) or (theirs != ours and not (theirs != theirs and ours != ours)):
        yield f"{path}: peer {_short(theirs)}, gymctl {_short(ours)}"


def _key(key: Any, places: Mapping[str, str]) -> str:
    return _text(key, places) if isinstance(key, str) else f"<{key!r}>"


def _text(text: str, places: Mapping[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    if _PLAIN.fullmatch(text):
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
