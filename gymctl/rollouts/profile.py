"""The reward profile of a run as three files (CONTRACT 11, `gym eval profile`); no server is asked.

    x_reward_profiling.jsonl          a line for each task (for each task and agent, where several run it)
    x_agent_metrics.json              the numbers of each agent that has rollouts
    x_repeat_level_metrics.json       the numbers of each repeat of each agent

Rows are joined with rollouts by task and rollout index. The profile holds all of both in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymctl.contract.aggregate import AggregateResponse
from gymctl.contract.rollout import ROLLOUT_INDEX, TASK_INDEX, Row, rollout_key
from gymctl.counts import counted
from gymctl.errors import ConfigError
from gymctl.metrics.aggregate import aggregate
from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.finish import document
from gymctl.rollouts.lines import replace
from gymctl.rollouts.metric_input import strip
from gymctl.rollouts.route import named_agent
from gymctl.rollouts.saved import Key, read_rows

_NOBODY = "agent"
"""The label of rows that name no agent."""
_SHOWN = 5
Part = tuple[int, str]
"""A task at an agent."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was written, and how complete it is."""

    files: tuple[Path, ...]
    summary: Mapping[str, int | float]


def write_profile(rollouts: Path, inputs: Path, *, is_partial: bool = False) -> Profile:
    """Raises ConfigError: duplicates, a rollout without row, a row without rollout unless `is_partial`."""
    rows, records = _by_key(inputs), _by_key(rollouts)
    _check(rows, records, inputs, rollouts, is_partial=is_partial)
    expected = Counter((key[0], _label(row)) for key, row in rows.items())
    completed = Counter((key[0], _label(rows[key])) for key in records)
    samples: dict[Part, Row] = {}
    for key, row in rows.items():
        samples.setdefault((key[0], _label(row)), row)
    answers = {
        label: aggregate([strip(record) for key, record in records.items() if _label(rows[key]) == label])
        for label in sorted({label for _, label in expected})
    }
    is_fanned = len({task for task, _ in expected}) < len(expected)
    paths = tuple(
        rollouts.with_name(f"{rollouts.stem}{end}")
        for end in ("_reward_profiling.jsonl", "_agent_metrics.json", "_repeat_level_metrics.json")
    )
    groups = _groups(answers, samples, expected, completed, is_fanned=is_fanned)
    replace(paths[0], (dumps(group) for group in groups))
    agents = ((label, _agent_metrics(one)) for label, one in answers.items())
    replace(paths[1], document([{**_ref(label), **metrics} for label, metrics in agents if metrics]))
    repeats = [
        {**_ref(label), **repeat} for label, one in answers.items() for repeat in one.repeat_level_metrics
    ]
    replace(paths[2], document(repeats))
    return Profile(paths, _summary(expected, completed))


def _by_key(path: Path) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    twice: list[Key] = []
    for _, row in read_rows(path):
        key = rollout_key(row)
        if key in found:
            twice.append(key)
        found[key] = row
    if twice:
        raise _refused(f"{counted(len(twice), 'line repeats', 'lines repeat')} a rollout", path, twice)
    return found


def _check(
    rows: Mapping[Key, Row], records: Mapping[Key, Row], inputs: Path, rollouts: Path, *, is_partial: bool
) -> None:
    if extra := [key for key in records if key not in rows]:
        what = f"{counted(len(extra), 'rollout has', 'rollouts have')} no row in {inputs}"
        raise _refused(what, rollouts, extra)
    missing = [key for key in rows if key not in records]
    if missing and not is_partial:
        has = "has" if len(missing) == 1 else "have"
        what = f"{len(missing):,} of {counted(len(rows), 'row')} {has} no rollout"
        raise _refused(what, rollouts, missing, "--allow-partial")


def _refused(what: str, path: Path, keys: Iterable[Key], flag: str | None = None) -> ConfigError:
    named = [f"{task}-{rollout}" for task, rollout in keys]
    more = [f"and {len(named) - _SHOWN} more"] if len(named) > _SHOWN else []
    hint = None if flag is None else f"{flag} profiles what is there"
    return ConfigError(what, where=str(path), details=[", ".join([*named[:_SHOWN], *more])], hint=hint)


def _label(row: Row) -> str:
    return named_agent(row) or str(row.get("task_source") or _NOBODY)


def _ref(label: str) -> dict[str, Any]:
    return {"agent_ref": {"name": label}}


def _agent_metrics(answer: AggregateResponse) -> dict[str, Any]:
    """As NeMo Gym's profile has them: how many repeats there were is not among them."""
    return {key: value for key, value in answer.agent_metrics.items() if key != "num_repeats"}


def _sample(row: Row) -> Row:
    """The task's row as it was given: which of its rollouts it stands for is no part of it."""
    return {key: value for key, value in row.items() if key not in (TASK_INDEX, ROLLOUT_INDEX)}


def _groups(
    answers: Mapping[str, AggregateResponse],
    samples: Mapping[Part, Row],
    expected: Mapping[Part, int],
    completed: Mapping[Part, int],
    *,
    is_fanned: bool,
) -> Iterator[dict[str, Any]]:
    """By task, then agent; what is complete is judged before masking."""
    found = [(group, label) for label, one in answers.items() for group in one.group_level_metrics]
    for group, label in sorted(found, key=lambda item: (item[0][TASK_INDEX], item[1])):
        part = (group[TASK_INDEX], label)
        yield {
            **group,
            **(_ref(label) if is_fanned else {}),
            "sample": _sample(samples[part]),
            "expected_num_rollouts": expected[part],
            "missing_num_rollouts": expected[part] - completed[part],
            "reward_profile_completion_pct": 100.0 * completed[part] / expected[part],
        }


def _summary(expected: Counter[Part], completed: Counter[Part]) -> dict[str, int | float]:
    rows, done = expected.total(), completed.total()
    whole = sum(completed[part] == count for part, count in expected.items())
    nothing = sum(not completed[part] for part in expected)
    return {
        "expected_rollout_rows": rows,
        "completed_rollout_rows": done,
        "missing_rollout_rows": rows - done,
        "extra_rollout_rows": 0,
        "reward_profile_completion_pct": 100.0 * done / rows if rows else 100.0,
        "total_input_rows": len(expected),
        "complete_input_rows": whole,
        "partial_input_rows": len(expected) - whole - nothing,
        "missing_input_rows": nothing,
    }
