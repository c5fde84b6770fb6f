"""How the health of a run is told: one line in a result, a table by check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymctl.contract.health import CHECKS

_SHOWN = 3


def health_text(run: Mapping[str, Any]) -> str:
    """`38 healthy · 2 unhealthy (model_call_failed 2)`."""
    verdicts, issues = run["verdicts"], found(run)
    parts = [f"{verdicts['healthy']:,} healthy"] if verdicts["healthy"] else []
    if verdicts["unhealthy"] or issues:
        most = sorted(issues.items(), key=lambda item: (-item[1], item[0]))
        which = ", ".join(f"{check} {count:,}" for check, count in most[:_SHOWN])
        more = ", …" if len(most) > _SHOWN else ""
        parts.append(f"{verdicts['unhealthy']:,} unhealthy" + (f" ({which}{more})" if which else ""))
    if verdicts["unobserved"]:
        parts.append(f"{verdicts['unobserved']:,} unobserved")
    return " · ".join(parts) or "no rollout"


def found(run: Mapping[str, Any]) -> dict[str, int]:
    """The checks that found something, and in how many rollouts or tasks."""
    return {check: count for check, count in run["issues"].items() if count}


def is_worth_a_line(run: Mapping[str, Any]) -> bool:
    """Without observability nothing was seen, and nothing needs to be said of it."""
    return bool(run["verdicts"]["healthy"] or run["verdicts"]["unhealthy"] or found(run))


def issue_rows(document: Mapping[str, Any], examples: Mapping[str, list[str]]) -> list[tuple[str, str, str]]:
    """Check, how many rollouts or tasks, the first of them."""
    tasks: dict[str, list[str]] = {}
    for name, task in document["tasks"].items():
        for check in task["flags"]:
            tasks.setdefault(check, []).append(f"task {name}")
    issues = found(document["run"])
    rows: list[tuple[str, str, str]] = []
    for check in CHECKS:
        if check in issues:
            named = examples.get(check) or tasks.get(check, [])
            more = ["…"] if issues[check] > _SHOWN else []
            rows.append((check, f"{issues[check]:,}", ", ".join([*named[:_SHOWN], *more])))
    return rows
