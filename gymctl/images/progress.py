"""How building tells what it does: the three calls of a reporter that the CLI implements."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """The same shape as the runtime's reporter; images stand below the runtime and cannot import it."""

    def step(self, name: str, text: str) -> None:
        """One line, printed once, when a step is done."""

    def note(self, text: str) -> None:
        """Something the user must know."""

    def progress(self, text: str) -> None:
        """What is going on right now; replaced by the next call."""
