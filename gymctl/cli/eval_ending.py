"""How `gymctl eval` ends: the result, what to do next, and the error that the exit code stands for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from gymctl.cli import eval_control as control
from gymctl.cli.eval_flags import EvalFlags
from gymctl.cli.identity import same_command
from gymctl.cli.output import Console
from gymctl.cli.table import RunFacts, file_lines, reason_lines, result_json, result_lines, under_floor
from gymctl.config.checks.evaluation import Written
from gymctl.config.tree.masking import MASK, redact
from gymctl.errors import GymctlError, Interrupted, RunError, ServerError
from gymctl.rollouts.run import Run


@dataclass(frozen=True, slots=True)
class Ending:
    """Of one evaluation."""

    asked: EvalFlags
    written: Written
    console: Console
    secrets: frozenset[str] = field(repr=False)

    def show(self, run: Run, facts: RunFacts) -> None:
        """The result on stdout; where the files are and what to do next on stderr."""
        console, paths = self.console, run.paths
        files = {
            "rollouts": paths.rollouts,
            "failures": paths.failures,
            "inputs": paths.inputs,
            "metrics": paths.aggregate,
            **({} if facts.health is None else {"health": paths.health}),
        }
        existing = {name: str(path) for name, path in files.items() if path.exists()}
        if self.asked.is_json:
            console.json({**result_json(run.tally, facts), "files": existing})
        else:
            console.say()
            console.data("\n".join(result_lines(run.tally, facts)))
        console.say()
        for text in file_lines(list(existing.items())):
            console.say(text)
        for reason in self._reasons(run):
            console.say(f" {'failed':<11} {reason}")
        if run.replaced:
            console.say(" note        replaced the results of an earlier run at the same place")
        if run.still_owed:
            command = self._same_command(run)
            console.say(f" continue with the {run.still_owed:,}: {command}")
            if MASK in command:
                console.say(f"   with your key in the place of {MASK}")
        elif not self.written.settings.disable_aggregation and not run.has_aggregate:
            console.say()
            console.say("next: the same command again computes the metrics")
        else:
            console.say()
            console.say(_next(run, self.written))

    def check(self, run: Run, problem: GymctlError | None, received: int | None) -> None:
        """Raise the error that the exit code stands for. received: the signal that ended the run."""
        if received is not None:
            raise Interrupted(
                "interrupted: some rollouts were not made" if run.tally.not_run else "interrupted",
                signal_number=received,
                hint=f"{run.paths.rollouts} has what is finished; the same command goes on with the others"
                if run.still_owed
                else None,
            )
        if run.lost:
            first = run.lost[0]
            raise ServerError(
                f"the run ended early: {'; '.join(str(lost) for lost in run.lost)}",
                details=[redact(text, self.secrets) for text in first.last_lines],
                hint=f"finished rollouts are in {run.paths.rollouts}, and the same command goes on with the "
                f"others; gymctl logs {first.server} says more",
            )
        if problem is not None:
            raise problem
        if run.cap is not None:
            raise control.budget_error(run)
        coverage = run.tally.headline().coverage
        if coverage < self.asked.min_coverage:
            raise RunError(
                f"coverage {coverage:.1%} is under the floor of {self.asked.min_coverage:.0%}",
                where=str(run.paths.failures),
                details=self._reasons(run) if self.console.is_quiet else (),
                hint=under_floor(run.tally, run.paths.rollouts),
            )

    def _same_command(self, run: Run) -> str:
        is_named = self.written.settings.output_jsonl_fpath is not None
        return same_command(self.secrets, run.paths.rollouts, names_output=is_named, cap=run.cap)

    def _reasons(self, run: Run) -> list[str]:
        return reason_lines(run.tally, lambda text: redact(text, self.secrets))


def _next(run: Run, written: Written) -> str:
    """One thing worth doing now."""
    if run.tally.failed:
        return f"next: gymctl why {shlex.quote(str(run.paths.rollouts))}"
    if written.settings.limit is not None:
        place = written.where("limit")
        limit = "--limit" if place == "--limit" else f"`limit` ({place})"
        return f"next: leave out {limit} and name another --output to run all rows"
    if run.summary.repeats == 1:
        return "next: add -k 4 for pass@4 and a narrower interval, with another --output"
    return f"next: gymctl metrics {shlex.quote(str(run.paths.rollouts))} --by task"
