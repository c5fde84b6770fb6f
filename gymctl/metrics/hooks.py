"""What the author of a server may add to the aggregation of its rollouts (CONTRACT 10.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymctl.contract.rollout import Row

Tasks = Sequence[Sequence[Row]]
"""The rows of each task, by task index, each task's by rollout index; masked rows are left out."""


class MetricHooks:
    """Override what you need. The methods are plain functions of their arguments and run in a thread."""

    def compute_metrics(self, tasks: Tasks) -> Mapping[str, Any]:
        """Further entries of `agent_metrics`, such as `passes(tasks)` of `gymctl.metrics.pass_at_k`.

        An entry `per_task_metrics`, a list of dicts that each name their `_ng_task_index`, is taken out and
        goes to the groups of those tasks.
        """
        return {}

    def get_key_metrics(self, agent_metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """The few numbers to show first; all means, unless you choose."""
        return {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}

    def compute_repeat_metrics(self, tasks: Tasks) -> Mapping[str, Any]:
        """Numbers of one repeat, from its rows only; called once per repeat when there are several.

        A name of yours replaces the column of the same name. It is kept only where it is a finite number in
        every repeat, and in the whole run if `agent_metrics` has it, too.
        """
        return {}
