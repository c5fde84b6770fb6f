"""Log lines of a server: `(weather) INFO rollout 3-0: …`, every line with the server's id in front."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Any, TextIO, cast

from gymctl.transport import ROLLOUT


class ServerFormatter(logging.Formatter):
    def __init__(self, server: str) -> None:
        super().__init__("%(levelname)s %(message)s")
        self._lead = f"({server}) "

    def formatMessage(self, record: logging.LogRecord) -> str:
        rollout = ROLLOUT.get()
        middle = f"rollout {rollout}: " if rollout else ""
        return f"{record.levelname} {middle}{record.message}"

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).splitlines() or [""]
        return "\n".join(self._lead + line for line in lines)


class Prefixed:
    """A stream whose lines begin with the server's id: what an author's code prints is told apart, too."""

    def __init__(self, stream: TextIO, server: str) -> None:
        self._stream = stream
        self._lead = f"({server}) "
        self._is_at_start = True

    def write(self, text: str) -> int:
        pieces: list[str] = []
        for piece in text.split("\n"):
            pieces.append(self._lead + piece if self._is_at_start and piece else piece)
            self._is_at_start = True
        self._is_at_start = text.endswith("\n") or (not text and self._is_at_start)
        self._stream.write("\n".join(pieces))
        if "\n" in text:
            self._stream.flush()
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def configure(server: str, level: str) -> None:
    """Send all logging of this process to stderr in our form; uvicorn's own loggers join in, and so does
    what is printed."""
    errors, output = sys.__stderr__ or sys.stderr, sys.__stdout__ or sys.stdout
    handler = logging.StreamHandler(errors)
    sys.stderr = cast(TextIO, Prefixed(errors, server))
    sys.stdout = cast(TextIO, Prefixed(output, server))
    handler.setFormatter(ServerFormatter(server))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    sys.excepthook = _tell
    # The access log is uvicorn's to switch: it has cut that logger off by now, or left it alone.
    # Start, stop and "Started server process" lines of uvicorn say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What ends the process, in the form of all our lines."""
    logging.getLogger("gymctl.server").critical("the server ends", exc_info=(kind, error, trace))
