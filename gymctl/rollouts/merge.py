"""Shards of one run become one file, ordered by task and rollout (CONTRACT 11, `gym eval aggregate`)."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from gymctl.contract.rollout import rollout_key
from gymctl.rollouts.saved import SavedRun, read_rows


def merge(shards: Sequence[SavedRun], output: Path) -> int:
    """Write the lines of all rollouts files to `output`, whole or not at all; returns their number.

    What the lines say stays byte for byte. In memory there are four numbers for each.
    """
    columns = tasks, rollouts, owners, starts = tuple(array("q") for _ in range(4))
    for number, shard in enumerate(shards):
        for start, row in read_rows(shard.paths.rollouts):
            for column, value in zip(columns, (*rollout_key(row), number, start), strict=True):
                column.append(value)
    order = sorted(range(len(tasks)), key=lambda place: (tasks[place], rollouts[place], owners[place]))
    side = output.with_name(f".{output.name}.merging")
    with contextlib.ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context(shard.paths.rollouts.open("rb")) for shard in shards]
        with side.open("wb") as merged:
            for place in order:
                file = files[owners[place]]
                file.seek(starts[place])
                merged.write(file.readline().strip() + b"\n")
    side.replace(output)
    return len(order)
