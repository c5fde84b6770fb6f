"""Rows with their prompts filled in, once and for all (`gymctl dataset render`)."""

from __future__ import annotations

from pathlib import Path

from gymctl.errors import ConfigError, UsageError
from gymctl.rollouts.dataset import Source, read
from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.files import replacing
from gymctl.rollouts.prompts import USED, Prompt


def render(source: Path, prompt: Prompt, target: Path) -> int:
    """Write the rendered rows, all or none; returns their number. Raises ConfigError with file and line."""
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError("the rendered rows would replace their own input", where=str(target))
    count = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        for source_row in read([Source(source, prompt=prompt)]):
            try:
                row = prompt.applied(source_row.row)
            except ConfigError as error:
                raise ConfigError(error.what, where=source_row.where, hint=error.hint) from None
            file.write(dumps({**row, USED: prompt.name}) + b"\n")
            count += 1
    return count
