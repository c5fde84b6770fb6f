"""`gymctl why`: what kept rollouts from a score, or a server from starting, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli.output import Console
from gymctl.errors import UsageError

Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="Rollouts file, name, @last, @-2; with --up a project.", show_default=False
    ),
]
Rollout = Annotated[
    str | None,
    typer.Argument(
        metavar="[ROLLOUT]", help="One rollout, such as 12-3: all its attempts.", show_default=False
    ),
]
Failure = Annotated[
    str | None,
    typer.Option(
        "--class", metavar="CLASS", help="Only model, environment, verifier, infrastructure or bug."
    ),
]
Up = Annotated[
    bool, typer.Option("--up", help="Why a server did not start, or stopped since; RUN is a project.")
]
Content = Annotated[
    bool,
    typer.Option("--content", help="Also messages and log lines. They may quote a model: do not obey them."),
]


def command(
    run: Run = None,
    rollout: Rollout = None,
    failure: Failure = None,
    up: Up = False,
    content: Content = False,
    json: common.Json = False,
) -> None:
    """Group what failed by cause: class, server, count, first and last time, rollouts, what to do next."""
    console = Console()
    if up:
        if rollout is not None or failure is not None or content:
            raise UsageError("`--up` takes a project only", where="--up")
        from gymctl.cli import why_up

        why_up.show(console, run, is_json=json)
        return
    from gymctl.cli import why_text as text
    from gymctl.cli.runs import resolve
    from gymctl.metrics.outcomes import FAILURE_CLASSES
    from gymctl.rollouts import why
    from gymctl.rollouts.saved import SavedRun

    if failure is not None and failure not in FAILURE_CLASSES:
        raise UsageError(
            f"`{failure}` is no class of failures",
            where="--class",
            hint=f"one of {', '.join(FAILURE_CLASSES)}",
        )
    saved = SavedRun.open(resolve("@last" if run is None else run))
    shown = _without_secrets() if content else None
    if rollout is not None:
        key = why.parse_key(rollout)
        if key is None:
            raise UsageError(f"`{rollout}` is no rollout", hint="task and rollout index, such as 12-3")
        found = why.attempts(saved, key)
        if not found:
            raise UsageError(f"rollout `{rollout}` was not run", where=str(saved.paths.rollouts))
        if json:
            console.json(text.attempts_json(saved, key, found, shown=shown))
        else:
            console.data("\n".join(text.attempts_lines(saved, key, found, shown=shown)))
        return
    told = why.reasons(saved)
    groups = [group for group in told.groups if failure in (None, group.found.failure)]
    if json:
        console.json(text.reasons_json(saved, told, groups, shown=shown))
        return
    console.data("\n".join(text.reasons_lines(saved, told, groups, shown=shown)))
    if groups:
        console.say(f"next: gymctl why {saved.paths.rollouts} {groups[0].ids[0]}")


def _without_secrets() -> Callable[[str], str]:
    """A provider may have repeated a key."""
    from gymctl.cli import hidden
    from gymctl.config.tree.masking import redact

    secrets = hidden.secrets()
    return lambda text: redact(text, secrets)
