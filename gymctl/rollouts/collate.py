"""Declared datasets -> one file per type (CONTRACT 8.7): rows that say where they are from, and figures.

<output>/<type>.jsonl                 all rows of one type, repeated as their datasets say
<output>/<type>_metrics.json          its figures
<place>/<stem>_prepare.jsonl          the same per dataset
<place>/<stem>_metrics.json           figures of a dataset that has none yet

The place of the last two is the dataset's own folder where that is asked for and can be written, else the
output. Files are replaced whole, and only when their text differs.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import TASK_INDEX, Row, is_materialized
from gymctl.counts import counted
from gymctl.errors import ConfigError, GymctlError, PrerequisiteError
from gymctl.rollouts.dataset import Source, SourceRow, read
from gymctl.rollouts.describe import Description, conflicts
from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.files import replacing, write_json
from gymctl.rollouts.prompts import Prompt

MODES: Mapping[str, tuple[str, ...]] = {
    "train_preparation": ("train", "validation", "benchmark"),
    "example_validation": ("example",),
}
"""`mode` -> the types of datasets that are collated."""
_IDENTITY = "_ng_"
_NO_TASK = ("agent_ref", "task_source", "skills_ref")
_NAMES_OF_A_TASK = ("task_id", "problem_id", "instance_id")
_SHOWN = 5

Check = Callable[[Row], str | None]
"""What is wrong with the task fields of a row, or None."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One `datasets:` entry whose file is there."""

    declared_by: str
    name: str
    type: str
    path: Path
    repeats: int = 1
    taskset: str | None = None
    """Rows become materialized ones of this taskset."""
    prompt: Prompt | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What stands at the head of its metrics file: licence, identifiers."""
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Options:
    output: Path
    is_beside: bool = True
    """Prepared rows and new figures go beside the dataset, where its folder can be written."""
    is_overwriting: bool = False
    """Figures that differ from those beside the dataset replace them."""
    is_strict: bool = False
    """A row that its `check` refuses is an error instead of a note."""


@dataclass(slots=True)
class Collated:
    """What was written, and what is worth telling."""

    files: dict[str, Path] = field(default_factory=dict)
    """By type."""
    rows: Counter[str] = field(default_factory=Counter)
    """Lines by type."""
    prepared: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collate(datasets: Sequence[Declared], options: Options) -> Collated:
    """Write all files. Raises ConfigError for rows that cannot be used and for figures that differ from those
    that are there, PrerequisiteError when the output cannot be written."""
    made = Collated()
    with _refused_by_disk(options.output):
        options.output.mkdir(parents=True, exist_ok=True)
        places = [_place(dataset, options, made) for dataset in datasets]
        made.prepared = prepared_paths(datasets, places)
        differing = [
            conflict
            for type_ in dict.fromkeys(dataset.type for dataset in datasets)
            for conflict in _one_type(type_, datasets, options, made)
        ]
    if differing:
        raise ConfigError(
            f"the figures of {len(differing)} datasets differ from those beside them"
            if len(differing) > 1
            else "the figures of a dataset differ from those beside it",
            where=differing[0][0],
            details=[line for _, lines in differing for line in lines],
            hint="++overwrite_metrics_conflicts=true replaces them",
        )
    return made


def prepared_paths(datasets: Sequence[Declared], places: Sequence[Path]) -> list[Path]:
    """A file for the prepared rows of each dataset: told apart as far as one name is declared twice."""
    bases = [place / f"{one.path.stem}_prepare" for one, place in zip(datasets, places, strict=True)]
    declarers = Counter(bases)
    instances = Counter((base, one.declared_by) for one, base in zip(datasets, bases, strict=True))
    taken: Counter[str] = Counter()
    paths: list[Path] = []
    for dataset, base in zip(datasets, bases, strict=True):
        name = str(base)
        if declarers[base] > 1:
            name += f".{_plain(dataset.declared_by)}"
        if instances[base, dataset.declared_by] > 1:
            name += f".{_plain(dataset.name)}"
        taken[name] += 1
        paths.append(Path(f"{name}.{taken[name]}.jsonl" if taken[name] > 1 else f"{name}.jsonl"))
    return paths


def _one_type(
    type_: str, datasets: Sequence[Declared], options: Options, made: Collated
) -> Iterator[tuple[str, list[str]]]:
    """Write the files of one type; yields the figures that differ."""
    target, total, position = options.output / f"{type_}.jsonl", Description(), 0
    indices: dict[int, Declared] = {}
    with replacing(target) as together:
        for dataset, prepared in zip(datasets, made.prepared, strict=True):
            if dataset.type != type_:
                continue
            own = Description()
            with replacing(prepared) as alone:
                for row in _rows(dataset, position, own, options, made):
                    position += 1
                    _claim_index(row, dataset, indices)
                    total.add(row, dataset.repeats)
                    line = dumps(row) + b"\n"
                    for _ in range(dataset.repeats):
                        alone.write(line)
                        together.write(line)
            yield from _figures(dataset, own, prepared, options)
    made.files[type_], made.rows[type_] = target, total.examples
    facts = {"name": type_, "type": type_, "jsonl_fpath": str(target)}
    write_json(options.output / f"{type_}_metrics.json", {**facts, **total.document()})


def _rows(dataset: Declared, first: int, own: Description, options: Options, made: Collated) -> Iterator[Row]:
    """Each row of a dataset as it is written; `own` describes the rows as they were."""
    stripped = 0
    source = Source(dataset.path, declared_by=dataset.declared_by, prompt=dataset.prompt)
    refused: list[str] = []
    for position, source_row in enumerate(read([source]), first):
        row = source_row.row
        own.add(row)
        stripped += not is_materialized(row) and row.get("agent_ref") is not None
        made_row = _made(dataset, source_row, position)
        problem = dataset.check(made_row) if dataset.check is not None else None
        if problem is not None:
            refused.append(f"{source_row.where}: {problem}")
        yield made_row
    if stripped:
        made.notes.append(
            f"{counted(stripped, 'row')} of {dataset.path} {'names' if stripped == 1 else 'name'} an agent "
            "(`agent_ref`), which is deprecated and was "
            f"left out: they go to the agent of `{dataset.declared_by}`"
        )
    if refused:
        _tell_refused(refused, dataset, options, made)


def _made(dataset: Declared, source_row: SourceRow, position: int) -> Row:
    row = source_row.row
    if is_materialized(row):
        return row
    if dataset.prompt is not None:
        try:
            row = dataset.prompt.applied(row)
        except ConfigError as error:
            raise ConfigError(error.what, where=source_row.where, hint=error.hint) from None
    if dataset.taskset is not None:
        return materialized(row, dataset.taskset, position)
    return {
        **{key: value for key, value in row.items() if key != "agent_ref"},
        "task_source": dataset.declared_by,
    }


def materialized(row: Row, taskset: str, position: int) -> Row:
    """A flat row as one that names its task and input (CONTRACT 8.5, 7.7)."""
    own = [row[name] for name in _NAMES_OF_A_TASK if row.get(name) is not None]
    index = row.get(TASK_INDEX)
    name = own[0] if own else position if index is None else index
    task = {key: value for key, value in row.items() if key not in _NO_TASK and not key.startswith(_IDENTITY)}
    identity = {key: value for key, value in row.items() if key.startswith(_IDENTITY)}
    return {"task_id": {"taskset": taskset, "task_id": str(name)}, "task_input": task, **identity}


def _claim_index(row: Row, dataset: Declared, indices: dict[int, Declared]) -> None:
    """Two datasets that number their rows themselves would share tasks."""
    index = row.get(TASK_INDEX)
    if index is None:
        return
    owner = indices.setdefault(index, dataset)
    if owner is not dataset:
        raise ConfigError(
            f"`{owner.name}` and `{dataset.name}` both have a task with `{TASK_INDEX}` {index}",
            where=str(dataset.path),
            hint=f"leave `{TASK_INDEX}` out of one of them",
        )


def _tell_refused(refused: list[str], dataset: Declared, options: Options, made: Collated) -> None:
    shown = [*refused[:_SHOWN], *([f"and {len(refused) - _SHOWN} more"] if len(refused) > _SHOWN else [])]
    does = "does" if len(refused) == 1 else "do"
    rows = f"{counted(len(refused), 'row')} of `{dataset.name}`"
    what = f"{rows} {does} not fit the task data of `{dataset.declared_by}`"
    if options.is_strict:
        raise ConfigError(
            what,
            where=str(dataset.path),
            details=shown,
            hint="++task_data_validation=warn goes on all the same",
        )
    made.notes.append("\n  ".join([what, *shown]))


def _figures(
    dataset: Declared, own: Description, prepared: Path, options: Options
) -> Iterator[tuple[str, list[str]]]:
    """Write the figures of a dataset that has none; yields where and how those that it has differ."""
    facts = {"name": dataset.name, "type": dataset.type, **dataset.facts, "num_repeats": dataset.repeats}
    document = {**facts, **own.document()}
    beside = dataset.path.with_name(f"{dataset.path.stem}_metrics.json")
    is_beside = prepared.parent == dataset.path.parent
    target = beside if is_beside else prepared.with_name(_renamed(prepared.stem, "_metrics"))
    known = _known(beside)
    if known is None:
        write_json(target, document)
        return
    told = {key: value for key, value in known.items() if key not in facts}
    differing = sorted(conflicts(told, own.document()))
    if not differing:
        return
    if options.is_overwriting:
        write_json(beside, document)
        return
    write_json(target.with_name(f"{target.stem}_conflict.json"), document)
    yield str(beside), [f"{dataset.name}: {line}" for line in differing[:_SHOWN]]


def _known(path: Path) -> Mapping[str, Any] | None:
    """Figures that are there already; a file that is empty or no JSON counts as none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, Mapping) else None


def _place(dataset: Declared, options: Options, made: Collated) -> Path:
    folder = dataset.path.parent
    if not options.is_beside:
        return options.output
    if os.access(folder, os.W_OK):
        return folder
    note = f"{folder} cannot be written: prepared rows and figures are in {options.output}"
    if note not in made.notes:
        made.notes.append(note)
    return options.output


def _renamed(prepared: str, what: str) -> str:
    """`rows_prepare.desk` -> `rows_metrics.desk.json`."""
    stem, _, rest = prepared.rpartition("_prepare")
    return f"{stem}{what}{rest}.json"


def _plain(name: str) -> str:
    """Without what would lead out of the folder."""
    return name.replace(os.sep, "-")


@contextmanager
def _refused_by_disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except GymctlError:
        raise
    except OSError as error:
        raise PrerequisiteError(
            f"the collated rows cannot be written: {error.strerror}", where=str(error.filename or folder)
        ) from error
