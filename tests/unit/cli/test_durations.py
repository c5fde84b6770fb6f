"""Time limits as they are typed."""

from __future__ import annotations

import pytest

from gymctl.cli.durations import seconds
from gymctl.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30.0), ("0.2", 0.2), ("90s", 90.0), ("14m", 840.0), ("1h30m", 5400.0), ("1.5h", 5400.0),
        (" 2d ", 172_800.0), ("1H", 3600.0), (None, None), ("null", None), ("none", None), (".inf", None),
        ("inf", None), ("1e400", None),
    ],
)  # fmt: skip
def test_b110_times_that_are_accepted(text: str | None, expected: float | None) -> None:
    """BUG_CASES B110: "30" is 30, 0.2 stays a limit, null and infinity are none."""
    assert seconds(text, "--task-timeout") == expected


@pytest.mark.parametrize("text", [".nan", "nan", "0", "-1", "0s", "-inf", "14 m", "m", "1h30", "５m", "1e3m"])
def test_b110_times_that_switch_nothing_off_but_are_refused(text: str) -> None:
    """BUG_CASES B110."""
    with pytest.raises(UsageError, match="--task-timeout"):
        seconds(text, "--task-timeout")
