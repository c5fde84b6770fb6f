"""What two runs, or a run and what would be run now, were not made alike in: by name, old and new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymctl.errors import RunError
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.passport import Identity, Passport, RowsDigest

_LONGEST_VALUE = 60
_SHOWN = 12
_DIGEST_SHOWN = len("sha256:") + 12


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

    key: str
    old: Any
    new: Any
    kind: str = ""
    """`image`, `config`, `file`, …: told where two runs are compared."""

    def __str__(self) -> str:
        return f"{self.key}: {short(self.old)} → {short(self.new)}"


def differences(old: Passport, identity: Identity, rows: RowsDigest | None) -> list[Difference]:
    """What is not as it was; of the rows what explains it. `rows` is None: they cannot be read again."""
    found: list[Difference] = []
    if rows is not None and str(rows) != old.rows:
        found += _changed(old.settings, identity.settings)
        found += _changed(old.files, identity.files)
        found = found or [Difference("rows", f"sha256:{old.rows}", f"sha256:{rows}")]
    return found + list(_changed(old.config, identity.config))


def between(old: Passport, new: Passport) -> list[Difference]:
    """What two runs were made with differently. A file counts by what is in it, not by where it lies."""
    common = set(old.files.values()) & set(new.files.values())
    old_files, new_files = (
        {path: digest for path, digest in one.files.items() if digest not in common} for one in (old, new)
    )
    old_versions, new_versions = ({"gymctl": one.gymctl, "python": one.python} for one in (old, new))
    return [
        *_changed(old.images, new.images, "image"),
        *_changed(old.config, new.config, "config"),
        *_changed(old.settings, new.settings, "setting"),
        *_changed(old_files, new_files, "file"),
        *_changed(old.limits, new.limits, "limit"),
        *_changed(old_versions, new_versions, "version"),
    ]


def refusal(output: Path, found: Sequence[Difference]) -> RunError:
    """The run cannot be gone on with under another configuration."""
    lines = [str(difference) for difference in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    return RunError(
        "the results at this place were made with something else",
        where=str(output),
        details=lines,
        hint="--output FILE keeps them and starts another run, --fresh replaces them, "
        "--resume-anyway goes on with them and notes the difference",
    )


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], kind: str = "") -> Iterator[Difference]:
    plain: Mapping[str, Any] = loads(dumps(dict(new)))  # as it would be read back: no tuples
    for key in dict.fromkeys((*old, *plain)):
        if old.get(key) != plain.get(key):
            yield Difference(key, old.get(key), plain.get(key), kind)


def short(value: Any) -> str:
    """A value on one line; of a digest its beginning."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")
    text = "".join(character if character.isprintable() else " " for character in text)
    if text.startswith("sha256:"):
        return text[:_DIGEST_SHOWN]
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
