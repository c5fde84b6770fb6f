"""Task rows from JSON Lines files: what a row must have, and the file and line of one that does not."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from gymctl.contract.episodes import ROLLOUT_ID as ROLLOUT_ID_PATTERN
from gymctl.contract.rollout import ROLLOUT_ID, TASK_INDEX, Row, is_materialized
from gymctl.errors import ConfigError, UsageError
from gymctl.rollouts.encoding import loads, unreadable
from gymctl.rollouts.lines import numbered
from gymctl.rollouts.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Source:
    """One file of rows, and how its rows find an agent."""

    path: Path
    repeats: int = 1
    """The dataset's own `num_repeats`; multiplies with the run's."""
    declared_by: str | None = None
    """The instance whose `datasets:` lists this file. Its rows get this `task_source`, no `agent_ref`."""
    fallback: str | None = None
    """`task_source` of rows that name neither agent nor source (a file given on the command line)."""
    prompt: Prompt | None = None
    """Makes the `input` of the rows, which bring none."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row and where it stands."""

    row: Row
    path: Path
    line: int
    source: Source
    fingerprint: bytes
    """Equal exactly for identical raw lines."""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


def check_limit(limit: int | None) -> int | None:
    """None means all rows, 0 means none."""
    if limit is not None and limit < 0:
        raise UsageError(f"`--limit` must be 0 or more, got {limit}", hint="leave it out to run all rows")
    return limit


def read(sources: Sequence[Source], limit: int | None = None) -> Iterator[SourceRow]:
    """Yield the first `limit` rows over all sources (None: all, 0: none), in order.

    Lines end at `\\n` only: text may hold U+2028, form feeds and the like. A byte order mark, `\\r` before
    the newline, blank lines and a missing last newline are accepted. Raises ConfigError with file:line for a
    line that is no row.
    """
    yield from islice((row for source in sources for row in _read_file(source)), check_limit(limit))


def has_rows(source: Source) -> bool:
    return any(True for _ in _read_file(source))


def _read_file(source: Source) -> Iterator[SourceRow]:
    try:
        if _is_stream(source.path):
            raise ConfigError(
                "the input is a pipe or a device, and its rows are read more than once",
                where=str(source.path),
                hint="write the rows to a file first",
            )
        file = source.path.open("rb")
    except FileNotFoundError:
        raise ConfigError("the input file does not exist", where=str(source.path)) from None
    except OSError as error:
        raise ConfigError(
            f"the input file cannot be read: {error.strerror}", where=str(source.path)
        ) from error
    with file:
        for line in numbered(file):
            yield SourceRow(
                row=_parse(line.text, f"{source.path}:{line.number}", has_prompt=source.prompt is not None),
                path=source.path,
                line=line.number,
                source=source,
                fingerprint=blake2b(line.text, digest_size=16).digest(),
            )


def _is_stream(path: Path) -> bool:
    mode = path.stat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _parse(line: bytes, where: str, *, has_prompt: bool) -> Row:
    try:
        row = loads(line)
    except (RecursionError, ValueError) as error:
        raise ConfigError(unreadable(error), where=where) from None
    if not isinstance(row, dict):
        raise ConfigError(f"a row must be a JSON object, found {_json_type(row)}", where=where)
    problem = _problem(row, has_prompt=has_prompt)
    if problem:
        raise ConfigError(problem, where=where)
    return row


def _problem(row: Row, *, has_prompt: bool) -> str | None:
    """What a row lacks, or None."""
    task = row.get(TASK_INDEX)
    if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
        return f"`{TASK_INDEX}` must be a whole number of 0 or more, found {task!r}"
    rollout_id = row.get(ROLLOUT_ID)
    if rollout_id is not None and not (
        isinstance(rollout_id, str) and ROLLOUT_ID_PATTERN.fullmatch(rollout_id)
    ):
        return f"`{ROLLOUT_ID}` must match {ROLLOUT_ID_PATTERN.pattern}, found {rollout_id!r}"
    if is_materialized(row):
        return None
    params = row.get("responses_create_params")
    if params is None and has_prompt:
        params = {}
    if not isinstance(params, dict):
        return f"a row needs `responses_create_params` (an object), found {_json_type(params)}"
    is_input = isinstance(params.get("input"), (str, list))
    if not is_input and not (has_prompt and params.get("input") is None):
        return "`responses_create_params` needs `input` (text or a list of messages)"
    reference = row.get("agent_ref")
    if reference is not None and not (isinstance(reference, dict) and isinstance(reference.get("name"), str)):
        return '`agent_ref` must look like {"name": "<agent>"}'
    return None


def _json_type(value: object) -> str:
    if value is None:
        return "nothing"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return names[type(value)]
