"""Did you mean …? Close matches for a name that was not found, as one half sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

_SLIP = 0.8
"""How alike two keys are that have two neighbouring letters changed, from five letters on."""


def close(name: str, known: Iterable[str]) -> list[str]:
    """Up to three near names (CONTRACT 1.2: difflib, n=3, cutoff 0.6), best first."""
    return difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)


def slip(written: object, names: Iterable[str]) -> str | None:
    """The name that `written` is a slip of; None when it is one of them, or like none."""
    known = sorted(set(names))
    near = [] if written in known else difflib.get_close_matches(str(written), known, n=1, cutoff=_SLIP)
    return near[0] if near else None


def did_you_mean(near: Sequence[str]) -> str | None:
    """`did you mean `a` or `b`?`; nothing when there is no near name."""
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else None


def suggestion(name: str, known: Iterable[str], *, noun: str = "known") -> str | None:
    """`did you mean `a` or `b`?`, else the sorted names, else nothing."""
    names = sorted(set(known))
    if near := close(name, names):
        return did_you_mean(near)
    if not names:
        return None
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"{noun}: {shown}"


def beside(missing: Path, pattern: str) -> str | None:
    """What the folder of a file that is not there has instead: near names, else all that fit `pattern`."""
    return suggestion(missing.name, (file.name for file in missing.parent.glob(pattern)), noun="there")
