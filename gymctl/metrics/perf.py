"""What the run cost its servers: `perf_summary` of the rows that carry `ng_perf` (CONTRACT 10.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymctl.contract.rollout import Row
from gymctl.metrics.statistics import mean, median, number, percentile, population_std

PERF = "ng_perf"
_TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")


def perf_summary(rows: Sequence[Row]) -> dict[str, Any] | None:
    """None when no row was observed. Masked rows count: they cost as much. What no row tells is null."""
    observed = [row[PERF] for row in rows if isinstance(row.get(PERF), dict)]
    if not observed:
        return None
    covered = [value for value in _column(observed, "token_observability_coverage") if value > 0]
    summary: dict[str, Any] = {
        "overall_observability_coverage": len(observed) / len(rows),
        "token_observability_coverage": len(covered) / len(rows),
    }
    for name in _TOKENS:
        values = _column(observed, name)
        summary[f"mean_{name}"] = mean(values) if values else None
        summary[f"median_{name}"] = median(values) if values else None
        summary[f"total_{name}"] = _total(observed, name) if values else None
    turns = sorted(_column(observed, "num_turns"))
    summary |= {
        "mean_num_turns": mean(turns) if turns else None,
        "median_num_turns": median(turns) if turns else None,
        "std_num_turns": population_std(turns) if turns else None,
        "min_num_turns": turns[0] if turns else None,
        "p90_num_turns": percentile(turns, 0.9) if turns else None,
        "max_num_turns": turns[-1] if turns else None,
    }
    rates = [rate for perf in observed if (rate := _tokens_per_turn(perf)) is not None]
    summary["mean_tokens_per_turn"] = mean(rates) if rates else None
    summary["median_tokens_per_turn"] = median(rates) if rates else None
    latencies = sorted(_column(observed, "total_latency_ms"))
    for share in (50, 90, 99):
        summary[f"total_latency_p{share}_ms"] = percentile(latencies, share / 100) if latencies else None
    summary["total_latency_mean_ms"] = mean(latencies) if latencies else None
    return summary


def _column(observed: Sequence[Row], name: str) -> list[float]:
    return [value for perf in observed if (value := number(perf.get(name))) is not None]


def _total(observed: Sequence[Row], name: str) -> int | float:
    """Of whole numbers a whole number."""
    return sum(perf[name] for perf in observed if number(perf.get(name)) is not None)


def _tokens_per_turn(perf: Row) -> float | None:
    """What the model wrote in one turn; of a rollout without turns nothing."""
    tokens, turns = number(perf.get("completion_tokens")), number(perf.get("num_turns"))
    return tokens / turns if tokens is not None and turns else None
