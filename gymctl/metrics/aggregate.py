"""What `/aggregate_metrics` answers: pooled, per-task and per-repeat numbers of one server's rollouts.

Bit-compatible with CONTRACT 10.1-10.3. Columns are the top-level numbers of each row whose name does not
start with `_`, and the numbers of `response.usage`. Rows with a truthy `mask_sample` count for
`num_repeats` only. Text, null, NaN and infinities are no numbers: such a row simply lacks the column.
A server's hooks (10.4) add to these numbers and may replace those of the repeats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.contract.aggregate import AggregateResponse
from gymctl.contract.rollout import ROLLOUT_INDEX, TASK_INDEX, Row, rollout_key
from gymctl.metrics.hooks import MetricHooks
from gymctl.metrics.perf import perf_summary
from gymctl.metrics.statistics import mean, median, number, percentile, sample_std, t_interval

MASK = "mask_sample"
PER_TASK = "per_task_metrics"
_NOT_PRIMARY = ("median/", "std/", "sem/", "min/", "max/", "p25/", "p75/", "ci_low_95/", "ci_high_95/")
_NOT_PRIMARY_ENDS = (
    "/std_dev_across_runs",
    "/std_err_across_runs",
    "/avg_sample_std_dev",
    "/p5",
    "/p95",
    "ci_lower",
    "ci_upper",
)
_COUNTS = frozenset({"sample_count", "missing_count", "num_repeats", "token_usage_version", ROLLOUT_INDEX})
Columns = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class _Sample:
    """One measured rollout: where it belongs and its columns."""

    task: int
    rollout: int
    numbers: Mapping[str, float]
    """Finite, as floats: what statistics are made of."""
    raw: Mapping[str, int | float]
    """The same, as they were written: what `rollout_infos` shows."""
    row: Row
    """All of it, for the hooks."""


def aggregate(rows: list[dict[str, Any]], hooks: MetricHooks | None = None) -> AggregateResponse:
    """Aggregate the verify responses of one environment server. An empty list gives the empty answer."""
    hooks = hooks or MetricHooks()
    if not rows:
        return AggregateResponse()
    measured = [_sample(row) for row in rows if not row.get(MASK)]
    measured.sort(key=lambda sample: (sample.task, sample.rollout))
    coverage = _coverage(rows, measured)
    perf = perf_summary(rows)
    if not measured:
        return AggregateResponse(agent_metrics=dict(coverage), key_metrics=dict(coverage), perf_summary=perf)
    own = dict(hooks.compute_metrics([[sample.row for sample in task] for task in _tasks(measured)]))
    per_task = own.pop(PER_TASK, None) or ()
    agent = _five_families(_columns(measured)) | own
    agent["num_repeats"] = len({rollout_key(row)[1] for row in rows})
    repeats = _repeat_metrics(measured)
    if repeats:
        for entry, metrics in zip(repeats, _repeats_of_hook(measured, hooks, agent), strict=True):
            entry.update(metrics)
    agent.update(_across_repeats(repeats))
    keys = dict(hooks.get_key_metrics(agent))
    agent.update(coverage)
    keys.update(coverage)
    return AggregateResponse(
        group_level_metrics=_merged(_group_metrics(measured), per_task),
        agent_metrics=agent,
        key_metrics=keys,
        perf_summary=perf,
        repeat_level_metrics=repeats,
    )


def _tasks(measured: Iterable[_Sample]) -> list[list[_Sample]]:
    """By task, in the order of the samples."""
    tasks: dict[int, list[_Sample]] = {}
    for sample in measured:
        tasks.setdefault(sample.task, []).append(sample)
    return list(tasks.values())


def _merged(groups: list[dict[str, Any]], per_task: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups with what the hook says of their tasks; what it says of others is dropped."""
    by_task = {group[TASK_INDEX]: group for group in groups}
    for entry in per_task:
        by_task.get(entry.get(TASK_INDEX), {}).update(entry)
    return groups


def _sample(row: Row) -> _Sample:
    task, rollout = rollout_key(row)
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    raw: dict[str, int | float] = {}
    numbers: dict[str, float] = {}
    own = ((name, value) for name, value in row.items() if not name.startswith("_") and name != MASK)
    for name, value in (*own, *(usage.items() if isinstance(usage, dict) else ())):
        converted = number(value)
        if converted is not None:
            numbers[name] = converted
            raw[name] = int(value) if isinstance(value, bool) else value
    return _Sample(task, rollout, numbers, raw, row)


def _columns(samples: Iterable[_Sample]) -> Columns:
    columns: Columns = {}
    for sample in samples:
        for name, value in sample.numbers.items():
            columns.setdefault(name, []).append(value)
    return columns


def _five_families(columns: Columns) -> dict[str, Any]:
    """mean, max, min, median, std. A std that one value leaves undefined is dropped; if all are, it is 0."""
    metrics: dict[str, Any] = {}
    for family, function in (("mean", mean), ("max", max), ("min", min), ("median", median)):
        metrics |= {f"{family}/{name}": function(values) for name, values in columns.items()}
    spreads = {f"std/{name}": sample_std(values) for name, values in columns.items() if len(values) > 1}
    return metrics | (spreads or {f"std/{name}": 0.0 for name in columns})


def _coverage(rows: Sequence[Row], measured: Sequence[_Sample]) -> dict[str, Any]:
    """Four numbers about masking, only when something is masked."""
    masked = len(rows) - len(measured)
    if not masked:
        return {}
    tasks = {sample.task for sample in measured}
    return {
        "coverage/measured_rollouts": len(measured),
        "coverage/masked_rollouts": masked,
        "coverage/measured_tasks": len(tasks),
        "coverage/fully_masked_tasks": len({rollout_key(row)[0] for row in rows} - tasks),
    }


def _group_metrics(measured: Sequence[_Sample]) -> list[dict[str, Any]]:
    return [_group(samples[0].task, samples) for samples in _tasks(measured)]


def _group(task: int, samples: list[_Sample]) -> dict[str, Any]:
    return {
        TASK_INDEX: task,
        **_five_families(_columns(samples)),
        "sample": {"agent_ref": {"name": "agent"}},
        "num_rollouts": len(samples),
        # The request names only rollouts that exist, so here nothing can be missing.
        "expected_num_rollouts": len(samples),
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": [_rollout_info(sample) for sample in samples],
    }


def _rollout_info(sample: _Sample) -> dict[str, Any]:
    identity: dict[str, Any] = {
        "rollout_id": f"{sample.task}:{sample.rollout}",
        TASK_INDEX: sample.task,
        ROLLOUT_INDEX: sample.rollout,
    }
    reward = {"reward": sample.raw["reward"]} if "reward" in sample.raw else {}
    return {**identity, **reward, **sample.raw}


def _repeats(measured: Sequence[_Sample]) -> list[tuple[int, list[_Sample]]]:
    repeats: dict[int, list[_Sample]] = {}
    for sample in measured:
        repeats.setdefault(sample.rollout, []).append(sample)
    return sorted(repeats.items())


def _repeat_metrics(measured: Sequence[_Sample]) -> list[dict[str, Any]]:
    """One entry per rollout index; nothing when there is only one."""
    repeats = _repeats(measured)
    if len(repeats) < 2:
        return []
    tasks = {sample.task for sample in measured}
    entries: list[dict[str, Any]] = []
    for rollout, samples in repeats:
        present = len({sample.task for sample in samples})
        entry = {ROLLOUT_INDEX: rollout, "sample_count": present, "missing_count": len(tasks) - present}
        for name, values in _columns(samples).items():
            entry |= {f"{statistic}/{name}": value for statistic, value in _spread(values).items()}
        entries.append(entry)
    return entries


def _repeats_of_hook(
    measured: Sequence[_Sample], hooks: MetricHooks, agent: Mapping[str, Any]
) -> list[dict[str, float]]:
    """The hook's numbers of each repeat: finite in all of them, and in the run if it has them."""
    found = [
        hooks.compute_repeat_metrics([[sample.row for sample in task] for task in _tasks(samples)])
        for _, samples in _repeats(measured)
    ]
    columns = [{name: number(value) for name, value in metrics.items()} for metrics in found]
    kept = [
        name
        for name in columns[0]
        if all(metrics.get(name) is not None for metrics in columns)
        and (name not in agent or number(agent[name]) is not None)
    ]
    return [{name: value for name in kept if (value := metrics[name]) is not None} for metrics in columns]


def _spread(values: Sequence[float]) -> dict[str, float]:
    """The ten statistics of one column in one repeat; no interval for a single value."""
    ordered = sorted(values)
    std = sample_std(values) if len(values) > 1 else 0.0
    sem = std / math.sqrt(len(values))
    statistics = {
        "mean": mean(values),
        "median": percentile(ordered, 0.5),
        "std": std,
        "sem": sem,
        "min": ordered[0],
        "max": ordered[-1],
        "p25": percentile(ordered, 0.25),
        "p75": percentile(ordered, 0.75),
    }
    if len(values) > 1:
        low, high = t_interval(statistics["mean"], sem, len(values))
        statistics |= {"ci_low_95": low, "ci_high_95": high}
    return statistics


def _is_primary(name: str) -> bool:
    """Whether a number of a repeat is worth statistics over the repeats: no spread, bound or count is."""
    return name not in _COUNTS and not name.startswith(_NOT_PRIMARY) and not name.endswith(_NOT_PRIMARY_ENDS)


def _across_repeats(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics over the per-repeat means; spread and interval need the column in two repeats."""
    metrics: dict[str, Any] = {}
    names = dict.fromkeys(key for entry in repeats for key in entry if _is_primary(key))
    for name in names:
        values = [entry[name] for entry in repeats if name in entry]
        metrics[f"mean_across_repeats/{name}"] = mean(values)
        metrics[f"median_across_repeats/{name}"] = median(values)
        metrics[f"min_across_repeats/{name}"] = min(values)
        metrics[f"max_across_repeats/{name}"] = max(values)
        if len(values) > 1:
            std = sample_std(values)
            se = std / math.sqrt(len(values))
            low, high = t_interval(metrics[f"mean_across_repeats/{name}"], se, len(values))
            metrics[f"std_across_repeats/{name}"] = std
            metrics[f"se_across_repeats/{name}"] = se
            metrics[f"ci_low_95_across_repeats/{name}"] = low
            metrics[f"ci_high_95_across_repeats/{name}"] = high
    return metrics
