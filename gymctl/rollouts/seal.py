"""The seal of a run: when it has ended, its passport says what every file of it is, and what it is itself.

So an edit made later is found. A run that was killed has no seal; then the files that stood when it began are
held to what the passport said of them then, and the rollouts to the journal (altered.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import Row
from gymctl.paths import RunPaths
from gymctl.rollouts import lines
from gymctl.rollouts.encoding import loads
from gymctl.rollouts.expand import rollout_id
from gymctl.rollouts.passport import Identity, Passport, Seal, continued, now, read, text, write

ROWS = "rows.sha256"
CONFIG = "config.yaml"
COMPOSE = "compose.yaml"
LOCK = "images.lock.json"
INPUTS = "inputs"
BEGUN = (INPUTS, ROWS, CONFIG, COMPOSE, LOCK)
"""Files that are whole when the first rollout is sent."""
VALUES_KEPT = 8
_SAMPLING = ("temperature", "top_p", "max_output_tokens", "top_k", "min_p", "seed", "reasoning")


def files_of(paths: RunPaths) -> dict[str, Path]:
    """Ingredient -> file."""
    return {
        INPUTS: paths.inputs,
        "rollouts": paths.rollouts,
        "failures": paths.failures,
        "aggregate": paths.aggregate,
        **{name: paths.folder / name for name in (ROWS, CONFIG, COMPOSE, LOCK)},
    }


def digests(paths: RunPaths, names: Iterable[str] | None = None) -> dict[str, str]:
    """By ingredient, of those that are there."""
    files = files_of(paths)
    chosen = files if names is None else {name: files[name] for name in names}
    return {name: sha256(path) for name, path in chosen.items() if path.is_file()}


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def sealed(passport: Passport, paths: RunPaths, owed: int) -> Passport:
    """The passport with a seal over the files as they are now. Reads them all."""
    seal = Seal(at=now(), owed=owed, files=digests(paths))
    bare = passport.model_copy(update={"seal": seal})
    return bare.model_copy(
        update={"seal": seal.model_copy(update={"passport": own_digest(bare.model_dump())})}
    )


def renew(paths: RunPaths, command: Sequence[str]) -> None:
    """Seal a run again whose files were changed on purpose, and say by what. Nothing to do without a seal."""
    told = read(paths.passport)
    if told is not None and told.seal is not None:
        owed = told.seal.owed
        told = continued(told, Identity(command=command), ())
        write(paths.passport, sealed(told, paths, owed))


def own_digest(document: Mapping[str, Any]) -> str:
    """`sha256:…` of a passport: keys sorted, no blanks, without the line that says it."""
    seal = {key: value for key, value in document["seal"].items() if key != "passport"}
    plain = json.dumps({**document, "seal": seal}, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"


def is_as_sealed(raw: bytes) -> bool:
    """Whether the bytes of a `passport.json` that has a seal are those that were written."""
    try:
        document = json.loads(raw)
        return text(document) == raw and own_digest(document) == document["seal"]["passport"]
    except (ValueError, LookupError, AttributeError, TypeError):
        return False  # what was changed is its very form


def sampling(params: object, found: dict[str, list[Any]]) -> None:
    """Note what a row asks its model for."""
    if not isinstance(params, Mapping):
        return
    for key in _SAMPLING:
        value = params.get(key)
        if value is not None:
            values = found.setdefault(key, [])
            if value not in values and len(values) < VALUES_KEPT:
                values.append(value)


def row_line(digest: str, row: Row) -> bytes:
    """A line of `rows.sha256`: the sha256 of the row's line in the inputs file, and the id of its rollout."""
    return f"{digest}  {rollout_id(row)}\n".encode()


def changed_rows(paths: RunPaths) -> list[str]:
    """Ids of rows of the inputs file that are not what `rows.sha256` says, in their order."""
    told = dict(_told(paths.folder / ROWS))
    found: dict[str, str] = {}
    with paths.inputs.open("rb") as file:
        for line in lines.numbered(file):
            found[_id(line)] = hashlib.sha256(line.text).hexdigest()
    return [name for name in {**told, **found} if told.get(name) != found.get(name)]


def between_rows(old: RunPaths, new: Iterable[tuple[str, str]]) -> list[str]:
    """Ids of rows that another plan has otherwise; `new` has digest and id of each."""
    told = dict(_told(old.folder / ROWS))
    found = {name: digest for digest, name in new}
    return [name for name in {**told, **found} if told.get(name) != found.get(name)]


def read_rows(path: Path) -> Iterator[tuple[str, str]]:
    """Digest and id of each line of a `rows.sha256`."""
    return ((digest, name) for name, digest in _told(path))


def _told(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text("utf-8", "replace").split("\n"):
        digest, _, name = line.partition("  ")
        if name:
            yield name, digest


def _id(line: lines.Line) -> str:
    try:
        return rollout_id(loads(line.text))
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"line {line.number}"
