"""What a plan comes to: its tasks and servers, and what a user should be told before it is run."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from gymctl.counts import counted
from gymctl.errors import ConfigError
from gymctl.rollouts.repeats import Repeats
from gymctl.rollouts.route import DEFAULT, Router, Where

_SHOWN_PAIRS = 3


@dataclass(slots=True)
class PlanSummary:
    """Filled while the rows are read."""

    tasks: dict[int, int] = field(default_factory=dict)
    """Task index -> number of rollouts."""
    planned_by: Counter[str] = field(default_factory=Counter)
    """Environment server -> its rollouts."""
    servers: dict[str, set[str]] = field(default_factory=dict)
    """Environment server -> agents of the rows that go there."""
    repeats: int = 1
    """The most rollouts that one task has at one agent: the k of pass@k."""
    repeated_rows: int = 0
    """Rows of a task that an earlier row has begun."""
    rerouted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(agent of the row, agent that runs it instead) -> rows."""
    fanned_out: int = 0
    """Rows that several agents run."""
    replaced: dict[str, set[str]] = field(default_factory=dict)
    """Keys of `responses_create_params` whose mapping in a row was replaced -> what went with it."""
    names: dict[str, None] = field(default_factory=dict)
    """Names by which the settings may speak of the rows, in order."""
    without_repeats: dict[str, None] = field(default_factory=dict)
    """Names of rows for which `num_repeats` has no entry."""

    without_rows: list[str] = field(default_factory=list)
    """Files that have none."""
    unused: list[str] = field(default_factory=list)
    """Settings about rows that this run does not have, as sentences."""

    @property
    def rollouts(self) -> int:
        return sum(self.tasks.values())

    @property
    def agents(self) -> list[str]:
        return sorted(set().union(*self.servers.values()))

    def notices(self) -> Iterator[str]:
        """What is unusual enough to be told."""
        for path in self.without_rows:
            yield f"{path} has no rows"
        if not self.tasks:
            yield "0 rows: no rollout is made"
        for (old, new), rows in self.rerouted.most_common(_SHOWN_PAIRS):
            yield f"{rows} {_rows(rows)} `{old}`; they go to `{new}`"
        if len(self.rerouted) > _SHOWN_PAIRS:
            yield f"rows of {len(self.rerouted) - _SHOWN_PAIRS} more agents go elsewhere too"
        for key, lost in self.replaced.items():
            yield (
                f"`responses_create_params.{key}` replaces the rows' own as a whole: "
                f"without their {', '.join(f'`{name}`' for name in sorted(lost))}"
            )
        yield from self.unused
        if self.repeated_rows:
            these = counted(self.repeated_rows, "row is", "rows are")
            yield f"{these} equal to an earlier one: equal rows are one task with more rollouts"
        if self.fanned_out:
            yield f"the score is over all of {', '.join(self.agents)}; the metrics file has each alone"


def _rows(count: int) -> str:
    return "row names" if count == 1 else "rows name"


def check_names(summary: PlanSummary, repeats: Repeats, router: Router, where: Where) -> Iterator[str]:
    """Refuse names in `num_repeats` that nothing has, and rows without an entry; yield what is idle."""
    if summary.without_repeats:
        names = ", ".join(f"`{name}`" for name in summary.without_repeats)
        raise ConfigError(
            f"`num_repeats` has no entry for {names} and no `{DEFAULT}`",
            where=where("num_repeats"),
            hint=f"++num_repeats.{DEFAULT}=1",
        )
    for name in repeats.by_name:
        if name in summary.names:
            continue
        if not router.knows(name):
            near = difflib.get_close_matches(name, summary.names, n=3, cutoff=0.6)
            raise ConfigError(
                f"`num_repeats` names `{name}`, which no row and no server has",
                where=where(f"num_repeats.{name}"),
                hint=f"did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else None,
                details=[f"in the rows: {', '.join(summary.names) or 'nothing'}"],
            )
        yield f"`num_repeats.{name}` is about no row of this run"
