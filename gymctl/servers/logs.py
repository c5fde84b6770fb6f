"""Log lines of a server: `(weather) INFO rollout 3-0: …`, every line with the server's id in front."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

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


def configure(server: str, level: str) -> None:
    """Send all logging of this process to stderr in our form; uvicorn's own loggers join in."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ServerFormatter(server))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    sys.excepthook = _tell
    # The access log is uvicorn's to switch: it has cut that logger off by now, or left it alone.
    # Start, stop and "Started server process" lines of uvicorn say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What ends the process, in the form of all our lines."""
    logging.getLogger("gymctl.server").critical("the server ends", exc_info=(kind, error, trace))
