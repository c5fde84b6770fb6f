"""What the verdicts of a run come to: `quality_summary.json` (CONTRACT 9.10). Memory: a few counts a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from gymctl.contract.health import CHECKS
from gymctl.metrics.health import VERDICTS, Judged

CONSISTENTLY, NO_ANSWER = "task_consistently_unhealthy", "task_no_successful_model_calls"


@dataclass(slots=True)
class TaskHealth:
    """The rollouts of one task."""

    verdicts: Counter[str] = field(default_factory=Counter)
    issues: Counter[str] = field(default_factory=Counter)
    unseen: int = 0
    """Rollouts without a model call on record."""
    has_answer: bool = False

    def add(self, judged: Judged) -> None:
        self.verdicts[judged.verdict] += 1
        self.issues.update({finding["check"] for finding in judged.findings})
        self.unseen += not judged.calls
        self.has_answer = self.has_answer or judged.answers > 0

    @property
    def rollouts(self) -> int:
        return self.verdicts.total()

    def findings(self) -> tuple[list[str], list[str]]:
        """Checks of the task that found something, and those that saw too little."""
        found = [CONSISTENTLY] if self.rollouts > 1 and self.verdicts["unhealthy"] == self.rollouts else []
        if self.has_answer:
            return found, []
        return (found, [NO_ANSWER]) if self.unseen else ([*found, NO_ANSWER], [])


@dataclass(slots=True)
class Summary:
    """Add each judged record, then `document()`."""

    ignored: Collection[str] = ()
    records: int = 0
    captures: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    issues: Counter[str] = field(default_factory=Counter)
    stats: Counter[str] = field(default_factory=Counter)
    tasks: dict[int, TaskHealth] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first rollouts of each finding."""

    def add(self, judged: Judged, task: int | None, name: str) -> None:
        """`task` is None when the record does not tell, or is the second one of its rollout."""
        self.records += 1
        self.captures += judged.is_captured
        self.verdicts[judged.verdict] += 1
        self.stats.update(judged.stats)
        for check in {finding["check"] for finding in judged.findings}:
            self.issues[check] += 1
            named = self.examples.setdefault(check, [])
            if len(named) < 3:
                named.append(name)
        if task is not None:
            self.tasks.setdefault(task, TaskHealth()).add(judged)

    def document(self) -> dict[str, Any]:
        issues, tasks = Counter(self.issues), dict[str, Any]()
        for number, task in sorted(self.tasks.items()):
            found, unobserved = ([one for one in each if one not in self.ignored] for each in task.findings())
            issues.update(found)
            tasks[str(number)] = {
                "rollouts": task.rollouts,
                "verdicts": {name: task.verdicts[name] for name in VERDICTS},
                "issues": {check: task.issues[check] for check in CHECKS if task.issues[check]},
                "findings": found,
                "unobserved": unobserved,
            }
        run = {
            "ignored_checks": sorted(self.ignored),
            "artifacts": {
                "records": self.records,
                "captures": self.captures,
                "coverage": self.captures / self.records if self.records else None,
            },
            "verdicts": {name: self.verdicts[name] for name in VERDICTS},
            "issues": {check: issues[check] for check in CHECKS if issues[check]},
            "stats": {**self.stats, "tasks": len(self.tasks)},
        }
        return {"run": run, "tasks": tasks}
