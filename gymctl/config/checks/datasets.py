"""`datasets:` of agents and resources servers (CONTRACT 1.3), checked and found on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gymctl.config.checks.instances import Instance, is_whole
from gymctl.config.model import Dataset
from gymctl.config.names import suggestion
from gymctl.config.problems import Problems
from gymctl.config.reading.quoting import quote_hint
from gymctl.config.reading.roots import SearchRoots, is_file
from gymctl.config.tree.origins import Origins
from gymctl.errors import AlmostServerError

SOURCES = {"gitlab": ("dataset_name", "version", "artifact_fpath"), "huggingface": ("repo_id",)}
TYPES = ("train", "validation", "example", "benchmark")
LICENSES = (
    "Apache 2.0",
    "MIT",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "NVIDIA Evaluation Dataset License Agreement",
    "TBD",
    "GNU General Public License v3.0",
)
_TEXT = ("name", "type", "jsonl_fpath", "taskset")


def find(
    instances: Iterable[Instance], roots: SearchRoots, origins: Origins, problems: Problems
) -> tuple[Dataset, ...]:
    """All datasets that are declared rightly; the others are reported."""
    return tuple(
        dataset
        for instance in instances
        if instance.settings.get("datasets") is not None
        for dataset in _of(instance, roots, origins, problems)
    )


def _of(instance: Instance, roots: SearchRoots, origins: Origins, problems: Problems) -> Iterator[Dataset]:
    listed = instance.settings["datasets"]
    where = (*instance.path, "datasets")
    if not isinstance(listed, list):
        error = AlmostServerError(
            f"`{instance.name}`: `datasets` must be a list", where=origins.where(*where)
        )
        problems.add(error, *where)
        return
    for index, entry in enumerate(listed):
        mistakes = list(_problems(entry))
        for field, mistake in mistakes:
            place = origins.where(*where, index, field) or origins.where(*where, index)
            found = entry.get(field) if isinstance(entry, dict) else None
            is_unquoted = field in _TEXT and found is not None and not isinstance(found, str)
            path = (*where, index, field)
            hint = quote_hint(path, found, origins.find(*path)) if is_unquoted else None
            what = f"`{instance.name}`: dataset {index} {mistake}"
            error = AlmostServerError(what, where=place, hint=hint)
            problems.add(error, *where, index, field)
        if not mistakes:
            yield _dataset(instance, entry, roots)


def _dataset(instance: Instance, entry: dict[str, Any], roots: SearchRoots) -> Dataset:
    path = roots.find(entry["jsonl_fpath"])
    return Dataset(
        declared_by=instance.name,
        name=entry["name"],
        type=entry["type"],
        jsonl_fpath=entry["jsonl_fpath"],
        path=path if path is not None and is_file(path) else None,
        num_repeats=entry.get("num_repeats", 1) or 1,
        prepare_script=entry.get("prepare_script"),
        settings=entry,
    )


def _problems(entry: Any) -> Iterator[tuple[str, str]]:
    """Which field is wrong, and why."""
    if not isinstance(entry, dict):
        yield "", f"must be a mapping, got `{entry}`"
        return
    for key in ("name", "type", "jsonl_fpath"):
        value = entry.get(key)
        if not isinstance(value, str) or not value:
            is_given = value is not None and value != ""
            yield key, f"`{key}` must be text, got `{value}`" if is_given else f"needs `{key}`"
            return
    kind = entry["type"]
    if kind not in TYPES:
        yield "type", f"has an unknown type: `{kind}` ({suggestion(kind, TYPES, noun='allowed')})"
    repeats = entry.get("num_repeats")
    if repeats is not None and (not is_whole(repeats) or repeats < 1):
        yield "num_repeats", f"`num_repeats` must be at least 1, got `{repeats}`"
    if kind == "benchmark":
        if not isinstance(entry.get("prepare_script"), str):
            needs = (
                "of type benchmark needs `prepare_script`: a Python file whose `prepare()` returns the path"
            )
            yield "prepare_script", needs
        if entry.get("agent") is not None and entry.get("taskset") is not None:
            yield "taskset", "has both `agent` and `taskset`; use one"
    license_name = entry.get("license")
    if license_name is None and kind in ("train", "validation"):
        yield "license", f"of type {kind} needs `license`"
    # A benchmark has no such field (CONTRACT 1.3): shipped ones name licenses outside of the list.
    if license_name is not None and kind != "benchmark" and license_name not in LICENSES:
        hint = suggestion(str(license_name), LICENSES, noun="allowed")
        yield "license", f"has an unknown license: `{license_name}` ({hint})"
    taskset = entry.get("taskset")
    if taskset is not None and (not isinstance(taskset, str) or not taskset):
        yield "taskset", "`taskset` must be text"
    old = [key for key in ("gitlab_identifier", "huggingface_identifier") if entry.get(key) is not None]
    if entry.get("source") is not None and old:
        yield "source", f"has both `source` and `{old[0]}`; use `source`"
    else:
        yield from _source_problems(entry.get("source"))


def _source_problems(source: Any) -> Iterator[tuple[str, str]]:
    if source is None:
        return
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(source, dict) or kind not in SOURCES:
        yield "source", f"`source` needs a `type`, {' or '.join(SOURCES)}"
        return
    for key in SOURCES[kind]:
        if source.get(key) is None:
            yield "source", f"`source` of type {kind} needs `{key}`"
