"""The passport of scores that were made again: the run that they are of, the verifiers, what these ran in.

begin(…)    when the verifiers are up, before the first verdict is asked for
close(…)    when nothing is written any more

The answers are those of the old run, and so are the models' names; configuration, servers and lock are of the
verifiers alone, for nothing else was started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gymctl.contract.rollout import rollout_key
from gymctl.paths import RunPaths
from gymctl.rollouts import differences, lines, passport, seal, surroundings
from gymctl.rollouts.encoding import loads
from gymctl.rollouts.passport import Identity, Passport, RowsDigest, Surroundings
from gymctl.rollouts.place import lost_room
from gymctl.rollouts.saved import SavedRun


def begin(run: SavedRun, paths: RunPaths, identity: Identity, seen: Surroundings) -> Sequence[str]:
    """Write passport, configuration, compose file and lock beside the new scores at `paths`.

    With a passport there they are gone on with, and keep what was written first. Returns how the images
    differ then, as sentences. RunError: the disk is full.
    """
    found = passport.read(paths.passport)
    first = paths.lock.read_bytes() if found is not None and paths.lock.is_file() else None
    try:
        paths.folder.mkdir(parents=True, exist_ok=True)
        if found is None:
            told = _issued(run, paths, identity)
        else:
            told = passport.continued(found, identity, differences.differences(found, identity, None))
        told, documents, others = surroundings.noted(told, seen, first)
        if identity.config_text and found is None:
            documents[seal.CONFIG] = identity.config_text
        for name, text in documents.items():
            lines.replace(paths.folder / name, text.encode("utf-8", "surrogatepass"))
        stand = seal.digests(paths, seal.BEGUN)
        passport.write(paths.passport, told.model_copy(update={"documents": stand, "seal": None}))
    except OSError as error:
        raise lost_room(paths, error) from error
    return others


def close(run: SavedRun, paths: RunPaths) -> None:
    """Seal the new scores; what has an answer and no new verdict is still owed. Reads all files once.

    RunError: the disk is full.
    """
    told = passport.read(paths.passport)
    if told is None:
        return
    ended = {rollout.key for rollout in SavedRun(paths).rollouts()}
    owed = sum(
        1
        for rollout in run.rollouts()
        if isinstance(rollout.record.get("response"), Mapping) and rollout.key not in ended
    )
    try:
        passport.write(paths.passport, seal.sealed(told, paths, owed))
    except OSError as error:
        raise lost_room(paths, error) from error


def _issued(run: SavedRun, paths: RunPaths, identity: Identity) -> Passport:
    sampling: dict[str, list[Any]] = {}
    digest, repeats = _rows(paths, sampling)
    told = passport.issue(identity, digest, repeats, sampling)
    old = passport.read(run.paths.passport)
    scores = {"output": str(run.paths.rollouts.resolve())}
    if old is None:
        return told.model_copy(update={"scores_run": scores})
    return told.model_copy(
        update={
            "scores_run": {"run": old.run, **scores},
            "repeats": old.repeats,
            "model": old.model,
            "models_returned": old.models_returned,
            "fingerprints_returned": old.fingerprints_returned,
        }
    )


def _rows(paths: RunPaths, sampling: dict[str, list[Any]]) -> tuple[RowsDigest, int]:
    """The digest of each row to its file; of all together, and how many attempts a task has."""
    digest, attempts = RowsDigest(), Counter[int]()
    with paths.inputs.open("rb") as file, paths.rows.open("wb") as told:
        for line in lines.numbered(file):
            row = loads(line.text)
            told.write(seal.row_line(digest.add(line.text), row))
            seal.sampling(row.get("responses_create_params"), sampling)
            attempts[rollout_key(row)[0]] += 1
    return digest, max(attempts.values(), default=1)
