"""With `--json`, stdout is one JSON value also when a command fails: an error, unless a result is there."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from gymctl.cli.output import nobody_reads
from gymctl.errors import ConfigErrors, GymctlError, PrerequisiteErrors


class Stdout:
    """The stream, and whether anything was written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_empty = True

    def write(self, text: str) -> int:
        self.is_empty = False
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def fail(self, error: GymctlError | str, exit_code: int) -> None:
        """Write the error object: `{"error": {"what", "where", "details", "hint", "exit_code"}}`."""
        if not self.is_empty:
            return
        told = _told(GymctlError(error) if isinstance(error, str) else error)
        text = json.dumps({"error": {**told, "exit_code": exit_code}}, indent=2, ensure_ascii=False)
        with nobody_reads():
            print(text, file=self._stream, flush=True)


def _told(error: GymctlError) -> dict[str, Any]:
    told = {
        "what": error.what,
        "where": None if error.where is None else str(error.where),
        "details": list(error.details),
        "hint": error.hint,
    }
    if isinstance(error, (ConfigErrors, PrerequisiteErrors)):
        told["errors"] = [_told(one) for one in error.errors]
    return told


@contextlib.contextmanager
def watched() -> Iterator[Stdout]:
    """What is written to stdout is noticed meanwhile."""
    stream = Stdout(sys.stdout)
    with contextlib.redirect_stdout(cast(TextIO, stream)):
        yield stream
