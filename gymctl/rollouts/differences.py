"""What two runs, or a run and what would be run now, were not made alike in: by name, old and new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymctl.errors import RunError
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.passport import Identity, Passport, RowsDigest, ServerSeen

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
    # Of scores made again the passport tells what they were made with, and nothing of how the answers were.
    changed = _both if old.scores_run or new.scores_run else _changed
    old_versions, new_versions = ({"gymctl": one.gymctl, "python": one.python} for one in (old, new))
    return [
        *_images(old, new),
        *changed(old.config, new.config, "config"),
        *changed(old.settings, new.settings, "setting"),
        *changed(old_files, new_files, "file"),
        *changed(old.limits, new.limits, "limit"),
        *_changed(old_versions, new_versions, "version"),
        *_both(old.benchmark, new.benchmark, "benchmark"),
        *_both(returned(old), returned(new), "model"),
        *_both(in_force(old.servers), in_force(new.servers), "in force"),
        *_both(_machine(old), _machine(new), "machine"),
    ]


def in_force(servers: Mapping[str, ServerSeen]) -> dict[str, Any]:
    """`weather.memory_bytes` and so on: the limits that could be read."""
    return {
        f"{name}.{field}": getattr(seen, field)
        for name, seen in servers.items()
        if seen.cgroup is not None
        for field in ("memory_bytes", "cpus", "pids")
    }


def returned(passport: Passport) -> dict[str, Any]:
    """How the models called themselves."""
    names = {"name returned": passport.models_returned, "fingerprint": passport.fingerprints_returned}
    return {key: ", ".join(sorted(found)) for key, found in names.items() if found}


def _machine(passport: Passport) -> dict[str, Any]:
    found = passport.machine.model_dump(exclude={"utc_offset", "is_clock_synchronized"})
    return {key: value for key, value in found.items() if value}


def _images(old: Passport, new: Passport) -> Iterator[Difference]:
    """By id where both are known, whatever the tags; else by tag, which says what went in."""
    is_of_verifiers = bool(old.scores_run or new.scores_run)
    for name in dict.fromkeys((*old.images, *new.images)):
        if is_of_verifiers and not (name in old.images and name in new.images):
            continue
        tags = old.images.get(name), new.images.get(name)
        ids = tuple(one.servers[name].id if name in one.servers else None for one in (old, new))
        if None not in ids:
            before, after = tags if tags[0] != tags[1] else ids
            if ids[0] != ids[1]:
                yield Difference(name, before, after, "image")
        elif tags[0] != tags[1]:
            yield Difference(name, *tags, "image")


def _both(old: Mapping[str, Any], new: Mapping[str, Any], kind: str) -> Iterator[Difference]:
    """Of what both tell: what one does not know is no difference."""
    common = old.keys() & new.keys()
    before, after = ({key: one[key] for key in one if key in common} for one in (old, new))
    yield from _changed(before, after, kind)


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
