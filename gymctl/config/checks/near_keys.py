"""Keys of NeMo Gym's servers that are almost a field of their class: `num_worker: 4` would pass silently.

A warning and no error: code of the server may read keys that its class does not declare. So nothing is said
of a class that is not wholly known, nor of a key that a file of the server says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gymctl.config.checks.block_keys import DatasetEntry, generic_block
from gymctl.config.folder_text import files_of, text_of
from gymctl.config.model import ServerBlock
from gymctl.config.names import slip, suggestion
from gymctl.config.problems import Problems
from gymctl.config.server_classes.server_class import ServerClass, ServerClasses
from gymctl.config.tree.origins import Origins

_SAID_IN = frozenset({".py", ".pyi", ".sh", ".js", ".mjs", ".ts", ".md", ".toml", ".cfg", ".txt", ".j2"})
"""Not in YAML and rows: that is where the slip stands."""


def check(
    blocks: Iterable[ServerBlock], origins: Origins, classes: ServerClasses, problems: Problems
) -> None:
    """Warn of every key that nobody reads and that is almost one that somebody reads."""
    for block in blocks:
        for index, key, near in _of_datasets(block):
            place = origins.where(*block.path, "datasets", index, key)
            problems.warn(
                f"`{block.name}.datasets[{index}].{key}` means nothing ({place}); did you mean `{near}`?"
            )
        described = classes.of(block)
        declared = known(block, described)
        for key in block.settings if declared else ():
            if slip(key, declared) and not _is_said(str(key), described.folders | {block.folder}):
                problems.warn(undeclared(block, key, declared, f" ({origins.where(*block.path, key)})"))


def known(block: ServerBlock, described: ServerClass) -> frozenset[str]:
    """The keys of a server on another SDK; none for others, and where its class may read more."""
    if block.is_generated or described.family == "gymctl" or not described.is_closed:
        return frozenset()
    return described.keys | set(generic_block(block.kind).model_fields)


def undeclared(block: ServerBlock, key: object, declared: Iterable[str], place: str) -> str:
    """The line about a key that is none of the declared ones. place: ` (file:line)`, or empty."""
    near = suggestion(str(key), declared, noun="declared")
    return (
        f"`{block.name}`: the config class of {block.implementation} does not declare `{key}`{place}; {near}"
    )


def _of_datasets(block: ServerBlock) -> Iterator[tuple[int, Any, str]]:
    """Index of the dataset, what is almost a key of one, and the key."""
    entries = block.settings.get("datasets")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        for key in entry if isinstance(entry, Mapping) else ():
            near = slip(key, DatasetEntry.model_fields)
            if near is not None:
                yield index, key, near


def _is_said(key: str, folders: Iterable[Path]) -> bool:
    """Does a file in one of the folders hold the word?"""
    word = re.compile(rf"\b{re.escape(key)}\b")
    return any(word.search(text_of(file)) for folder in folders for file in files_of(folder, _SAID_IN))
