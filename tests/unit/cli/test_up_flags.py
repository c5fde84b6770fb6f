"""`gymctl up` refuses flags out of range before it reads anything."""

from __future__ import annotations

import pytest
import typer

from gymctl.cli.main import application
from gymctl.errors import UsageError


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--wait", "-5"], "`--wait` must be a number of seconds, got -5"),
        (["--wait", "nan"], "`--wait` must be a number of seconds, got nan"),
        (["--runtime", "podman"], "`podman` is no runtime"),
    ],
)
def test_flags_out_of_range(flags: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        typer.main.get_command(application()).main(["up", "weather", *flags], standalone_mode=False)
