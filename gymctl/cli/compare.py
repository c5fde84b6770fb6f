"""`gymctl compare`: do two runs differ, task by task, and is it more than chance?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli.output import Console
from gymctl.errors import GateError, UsageError

if TYPE_CHECKING:
    from gymctl.rollouts.compare import Compared

GATE = "no-worse-than"


Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="A B [C...]",
        help="Runs: rollouts file, name, @last, @-2. A is what the others are compared with.",
    ),
]
Metric = Annotated[
    str, typer.Option(metavar="FIELD", help="What to compare: a number on the records, dotted.")
]
LowerIsBetter = Annotated[
    bool, typer.Option("--lower-is-better", help="Of that metric, as of tokens or seconds.")
]
By = Annotated[
    str | None,
    typer.Option(metavar="FIELD", help="Also for each group of tasks: a field of their rows, dotted."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="FIELD", help="Tasks that share it are not independent (same document, same repository)."
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(help="Differences inside of it do not matter: `equivalent` becomes possible."),
]
Gate = Annotated[
    str | None,
    typer.Option(metavar=f"{GATE}=X", help="Exit code 7 unless B is at most X worse, at 95 %."),
]
MinCoverage = Annotated[
    float, typer.Option(help="Share of rollouts with a score below which the worst case decides.")
]
Md = Annotated[bool, typer.Option("--md", help="Markdown, for a pull request.")]


def command(
    runs: Runs,
    metric: Metric = "reward",
    lower_is_better: LowerIsBetter = False,
    by: By = None,
    cluster: Cluster = None,
    margin: Margin = None,
    gate: Gate = None,
    min_coverage: MinCoverage = 0.95,
    json: common.Json = False,
    md: Md = False,
) -> None:
    """Compare runs over the tasks they share, and say better, worse, equivalent or undecided.

    Tasks are paired by what they ask, not by row number. The verdict rests on the paired differences: a t
    interval and a sign-flip test, adjusted for the number of comparisons (Holm).
    """
    if len(runs) < 2:
        raise UsageError("two runs at least are needed", hint="gymctl compare @-2 @last")
    if json and md:
        raise UsageError("`--json` and `--md` do not go together")
    if margin is not None and not margin > 0:
        raise UsageError(f"`--margin` must be above 0, got {margin:g}")
    if not 0 <= min_coverage <= 1:
        raise UsageError(f"`--min-coverage` must be between 0 and 1, got {min_coverage:g}")
    allowed = None if gate is None else allowed_loss(gate)

    from gymctl.cli import compare_text as text
    from gymctl.cli.runs import resolve
    from gymctl.metrics.comparison import Rules
    from gymctl.rollouts.compare import compare
    from gymctl.rollouts.pairing import Asked, read
    from gymctl.rollouts.saved import SavedRun

    console = Console()
    saved = [SavedRun.open(resolve(name)) for name in runs]
    tasks = read(saved, Asked(metric, cluster, by))
    rules = Rules(margin, lower_is_better)
    found = compare(tasks, rules, min_coverage=min_coverage, is_grouped=by is not None)
    told = text.Told(tuple(tasks), tuple(found), metric, by, rules, allowed)
    if json:
        console.json(text.as_json(told))
    elif md:
        console.data("\n".join(text.as_markdown(told)))
    else:
        console.data("\n".join(text.as_lines(told)))
    if not json and (following := text.next_step(told)) is not None:
        console.say(following)
    _judge(found, allowed)


def allowed_loss(gate: str) -> float:
    """The X of `no-worse-than=X`. Raises UsageError."""
    name, _, number = gate.replace(" ", "=", 1).partition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if name != GATE or not 0 <= value < float("inf"):
        raise UsageError(f"`--gate` is `{GATE}=X` with a number X of 0 or more, got `{gate}`", where="--gate")
    return value


def _judge(found: list[Compared], allowed: float | None) -> None:
    from gymctl.cli.compare_text import gate_words, passes

    failed = [] if allowed is None else [one for one in found if not passes(one, allowed)]
    if allowed is not None and failed:
        raise GateError(
            f"{'; '.join(f'{one.b.name}: {gate_words(one, allowed)}' for one in failed)}",
            where="--gate",
            hint=None
            if all(one.is_covered for one in failed)
            else "too little has a score, so the worst case counts",
        )
