"""The inputs file of a run: every row as it will be sent, written once, and read back while rows are owed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import Row, rollout_key
from gymctl.rollouts import lines, seal
from gymctl.rollouts.attempts import again
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.history import History
from gymctl.rollouts.passport import RowsDigest


def write(rows: Iterable[Row], path: Path, digests: Path, sampling: dict[str, list[Any]]) -> RowsDigest:
    """The rows to `path` and the digest of each to `digests`, on disk when it returns; `sampling` gets the
    parameters that they ask for."""
    digest = RowsDigest()
    with path.open("wb") as file, digests.open("wb") as told:
        for row in rows:
            line = dumps(row)
            told.write(seal.row_line(digest.add(line), row))
            seal.sampling(row.get("responses_create_params"), sampling)
            file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return digest


def owed(path: Path, history: History, seconds: Mapping[Any, float]) -> Iterator[tuple[bytes, Row]]:
    """The rows that are owed, line and row, one by one. A row that failed before has the number of its
    failures as `_ng_attempt_index`. seconds: by task, what took longest so far comes first, so that it does
    not run alone in the end; none: the order of the file."""
    order = list[tuple[float, int]]()
    with path.open("rb") as file:
        for line in lines.numbered(file):
            item = _owed(line.text, history)
            if item is not None and seconds:
                order.append((-seconds.get(rollout_key(item[1])[0], 0.0), line.start))
            elif item is not None:
                yield item
        for _, start in sorted(order):
            file.seek(start)
            if (item := _owed(file.readline().strip(), history)) is not None:
                yield item


def _owed(line: bytes, history: History) -> tuple[bytes, Row] | None:
    row: Row = loads(line)
    key = rollout_key(row)
    if not history.is_owed(key):
        return None
    failures = history.failures.get(key, 0)
    if failures:
        row = again(row, failures, reuses=key in history.reusing)
        line = dumps(row)
    return line, row
