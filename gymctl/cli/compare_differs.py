"""What two compared runs were made with differently, above their numbers: images, configuration, limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymctl.rollouts.compare import Compared
from gymctl.rollouts.differences import Difference, between, short

_SHOWN = 12
_WIDTH = 100
_TAG_SHOWN = 7
_LONGEST_KEY = 60
_FIRST_SHOWN = 24


def differs(one: Compared) -> list[Difference] | None:
    """None: one of the runs has no passport."""
    if one.a.passport is None or one.b.passport is None:
        return None
    return between(one.a.passport, one.b.passport)


def differs_rows(one: Compared) -> Iterator[tuple[str, str]]:
    """`image weather b7d2a18 ← 77aa910 · config weather.timeout 30 ← 60`, in as many rows as it takes."""
    found = differs(one)
    if found is None:
        lacking = [run.name for run in (one.a, one.b) if run.passport is None]
        yield "differs", f"unknown, no passport: {', '.join(lacking)}"
        return
    texts = [_text(difference) for difference in found[:_SHOWN]]
    if len(found) > _SHOWN:
        texts.append(f"and {len(found) - _SHOWN:,} more (--json has all)")
    label = "differs"
    for row in _wrapped(texts or ["nothing that the passports tell of"]):
        yield label, row
        label = ""


def differs_json(one: Compared) -> list[dict[str, Any]] | None:
    found = differs(one)
    if found is None:
        return None
    return [{"kind": each.kind, "key": each.key, "a": each.old, "b": each.new} for each in found]


def _text(difference: Difference) -> str:
    old, new = difference.old, difference.new
    if difference.kind == "image" and isinstance(old, str) and isinstance(new, str):
        old, new = _tags(old, new)
    return " ".join(f"{difference.kind} {_key(difference.key)} {_digest(new)} ← {_digest(old)}".split())


def _key(key: str) -> str:
    """Whose it is and how it ends: keys of one server often begin alike."""
    text = "".join(character if character.isprintable() else " " for character in key)
    if len(text) <= _LONGEST_KEY:
        return text
    first = text.partition(".")[0][:_FIRST_SHOWN]
    return f"{first}…{text[len(first) - _LONGEST_KEY + 1 :]}"


def _digest(value: Any) -> str:
    return short(value).removeprefix("sha256:")


def _tags(old: str, new: str) -> tuple[str, str]:
    """Images of one name are told apart by the beginning of their tags."""
    before, _, old_tag = old.rpartition(":")
    after, _, new_tag = new.rpartition(":")
    if not before or before != after or old_tag[:_TAG_SHOWN] == new_tag[:_TAG_SHOWN]:
        return old, new
    return old_tag[:_TAG_SHOWN], new_tag[:_TAG_SHOWN]


def _wrapped(texts: list[str]) -> Iterator[str]:
    row = ""
    for text in texts:
        longer = f"{row} · {text}" if row else text
        if row and len(longer) > _WIDTH:
            yield row
            longer = text
        row = longer
    yield row
