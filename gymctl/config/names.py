"""Did you mean …? Close matches for a name that was not found, as one half sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def close(name: str, known: Iterable[str]) -> list[str]:
    """Up to three near names (CONTRACT 1.2: difflib, n=3, cutoff 0.6), best first."""
    return difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)


def suggestion(name: str, known: Iterable[str], *, noun: str = "known") -> str | None:
    """`did you mean `a` or `b`?`, else the sorted names, else nothing."""
    names = sorted(set(known))
    near = close(name, names)
    if near:
        return f"did you mean {' or '.join(f'`{candidate}`' for candidate in near)}?"
    if not names:
        return None
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"{noun}: {shown}"
