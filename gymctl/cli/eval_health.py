"""The health check after an evaluation or an aggregation: when it fails, nothing else does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from gymctl.cli.output import Console
from gymctl.paths import RunPaths
from gymctl.rollouts.health import check
from gymctl.rollouts.saved import SavedRun


def checked(
    runs: Sequence[SavedRun],
    output: RunPaths,
    ignored: Collection[str],
    workers: int | None,
    console: Console,
) -> dict[str, Any] | None:
    """`run` of the summary; None, and a warning, when the check could not be made."""
    try:
        return check(runs, output, ignored, workers).document["run"]
    except Exception as error:  # noqa: BLE001 - the rollouts are there and paid for, whatever this is
        why = error.strerror if isinstance(error, OSError) else None
        console.insist(
            f"warning: the health of the rollouts was not checked: {why or type(error).__name__}; "
            f"try gymctl health-check {output.rollouts}"
        )
        return None
