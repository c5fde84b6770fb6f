"""What the verdicts of a run come to: `quality_summary.json` (CONTRACT 9.10). Memory: a few counts a task.

{"run": {"ignored_checks": [], "artifacts": {"records": 2, "captures": 2, "coverage": {CHECK: {…}}},
         "verdicts": {…}, "issues": {CHECK: 0}, "stats": {"model_call_errors": {…}, "tokens": {…}, …}},
 "tasks": {"0": {"repeats": 2, "healthy": 1, "unhealthy": 1, "unobserved": 0, "flags": [CHECK]}}}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from gymctl.contract.health import CHECKS, RECORD_CHECKS
from gymctl.metrics.health import VERDICTS, Judged

CONSISTENTLY, NO_ANSWER = "task_consistently_unhealthy", "task_no_successful_model_calls"
Said = Literal["found", "nothing", "unobserved"]
_FAILED = "failed "


@dataclass(slots=True)
class TaskHealth:
    """The rollouts of one task."""

    verdicts: Counter[str] = field(default_factory=Counter)
    unseen: int = 0
    """Rollouts without a model call on record."""
    has_answer: bool = False

    def add(self, judged: Judged) -> None:
        self.verdicts[judged.verdict] += 1
        self.unseen += not judged.calls
        self.has_answer = self.has_answer or judged.answers > 0

    def checks(self) -> dict[str, Said]:
        """What each check of a task says of this one."""
        seen = self.verdicts["healthy"] + self.verdicts["unhealthy"]
        consistently: Said = "found" if not self.verdicts["healthy"] else "nothing"
        answered: Said = "nothing" if self.has_answer else "unobserved" if self.unseen else "found"
        return {CONSISTENTLY: consistently if seen > 1 else "unobserved", NO_ANSWER: answered}


@dataclass(slots=True)
class Summary:
    """Add each judged record, then `document()`."""

    ignored: Collection[str] = ()
    records: int = 0
    captures: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    issues: Counter[str] = field(default_factory=Counter)
    unobserved: Counter[str] = field(default_factory=Counter)
    """Records that say too little for a check."""
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
        self.unobserved.update(judged.unobserved)
        for check in {finding["check"] for finding in judged.findings}:
            self.issues[check] += 1
            named = self.examples.setdefault(check, [])
            if len(named) < 3:
                named.append(name)
        if task is not None:
            self.tasks.setdefault(task, TaskHealth()).add(judged)

    def document(self) -> dict[str, Any]:
        issues, coverage = Counter(self.issues), self._coverage()
        tasks: dict[str, Any] = {}
        for number, task in sorted(self.tasks.items()):
            said = task.checks()
            flags = [check for check in said if said[check] == "found" and check not in self.ignored]
            issues.update(flags)
            counts = {name: task.verdicts[name] for name in VERDICTS}
            tasks[str(number)] = {"repeats": task.verdicts.total(), **counts, "flags": flags}
        run = {
            "ignored_checks": sorted(self.ignored),
            "artifacts": {"records": self.records, "captures": self.captures, "coverage": coverage},
            "verdicts": {name: self.verdicts[name] for name in VERDICTS},
            "issues": {check: issues[check] for check in CHECKS},
            "stats": self._stats(),
        }
        return {"run": run, "tasks": tasks}

    def _coverage(self) -> dict[str, dict[str, int]]:
        """By check: how many rollouts, or tasks, it could judge."""
        unobserved = Counter(self.unobserved)
        for task in self.tasks.values():
            unobserved.update(check for check, said in task.checks().items() if said == "unobserved")
        coverage: dict[str, dict[str, int]] = {}
        for check in CHECKS:
            total = self.records if check in RECORD_CHECKS else len(self.tasks)
            if check in self.ignored:
                coverage[check] = {"evaluated": 0, "unobserved": 0, "ignored": total}
            else:
                seen = total - unobserved[check]
                coverage[check] = {"evaluated": seen, "unobserved": unobserved[check], "ignored": 0}
        return coverage

    def _stats(self) -> dict[str, Any]:
        statuses = sorted(name for name in self.stats if name.startswith(_FAILED))
        return {
            "model_call_errors": {
                "total": self.stats["failed"],
                "by_status": {name.removeprefix(_FAILED): self.stats[name] for name in statuses},
                "rollouts_affected": self.stats["rollouts_affected"],
                "ended_on_error": self.stats["ended_on_error"],
            },
            "duplicated_calls": {
                "replayed": self.stats["replayed"],
                "rollouts": self.stats["rollouts_replayed"],
            },
            "tokens": {
                name: self.stats[name]
                for name in ("prompt", "completion", "capture_prompt", "capture_completion")
            },
            **{name: self.stats[name] for name in ("turns", "model_calls")},
        }
