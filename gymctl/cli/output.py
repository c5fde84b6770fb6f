"""Where text goes: data to stdout, talk to stderr; no colour, motion or prompt where nobody looks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from gymctl.errors import ConfigErrors, GymctlError, Place, PrerequisiteErrors

NAME_WIDTH = 14
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def plain(text: str) -> str:
    """Without escape sequences and control characters: what a model wrote must not move the cursor (B139)."""
    return text if text.isprintable() else _CONTROL.sub("", text)


def has_motion(stream: TextIO) -> bool:
    """Whether lines may be redrawn: a terminal that is neither dumb nor told to stay quiet."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


class ReaderGone(Exception):
    """Whoever read our stdout has left (`gymctl logs -f | head -1`): nothing more to say, and no error.

    Not an OSError: Typer would take that for exit code 1, which here means a wrong configuration.
    """


def _is_gone(error: OSError) -> bool:
    """A pipe whose reader has left, or a terminal that was closed."""
    return isinstance(error, BrokenPipeError) or error.errno == errno.EIO


@contextlib.contextmanager
def nobody_reads() -> Iterator[None]:
    """What is written in the block may find nobody there."""
    try:
        yield
    except OSError as error:
        if not _is_gone(error):
            raise


class Console:
    """One per command; holds no state but its verbosity and what is being redrawn."""

    def __init__(
        self, *, is_quiet: bool = False, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.is_quiet = is_quiet
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._open_line = 0
        self._above: Callable[[str], None] | None = None

    @property
    def has_motion(self) -> bool:
        return has_motion(self._err) and not self.is_quiet

    def data(self, text: str) -> None:
        """What the user asked for, on stdout."""
        self._close_line()
        try:
            print(text, file=self._out, flush=True)
        except OSError as error:
            if not _is_gone(error):
                raise
            raise ReaderGone from None

    def json(self, value: Any) -> None:
        self.data(json.dumps(value, indent=2, ensure_ascii=False, default=str))

    def say(self, text: str = "") -> None:
        """What the user may like to know, on stderr."""
        if not self.is_quiet:
            self.insist(text)

    def insist(self, text: str) -> None:
        """Like `say`, also under --quiet: warnings and what a signal does. Nobody has to listen: a reader of
        stderr that leaves does not end a run."""
        self._close_line()
        text = plain(text)
        if self._above is not None:
            self._above(text)
            return
        with nobody_reads():
            print(text, file=self._err, flush=True)

    @contextlib.contextmanager
    def drawing(self, above: Callable[[str], None]) -> Iterator[TextIO]:
        """The stream for a block that is redrawn in place; `above` prints what is said meanwhile."""
        self._close_line()
        self._above = above
        try:
            yield self._err
        finally:
            self._above = None

    def table(self, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Aligned columns on stdout; a column whose cells are all numbers is right-aligned."""
        self.data("\n".join(table_lines(header, rows)))

    def transient(self, text: str) -> None:
        """Text that the next call replaces; nothing where lines cannot be redrawn."""
        if not self.has_motion:
            return
        width = max(20, _terminal_width(self._err) - 1)
        shown = text if len(text) <= width else text[: width - 1] + "…"
        with nobody_reads():
            print(f"\r{shown.ljust(self._open_line)}", end="", file=self._err, flush=True)
        self._open_line = len(shown)

    def error(self, error: GymctlError) -> None:
        """`error:` what, `-->` where, details, `hint:`; once, on stderr."""
        self.clear_line()
        several = error.errors if isinstance(error, (ConfigErrors, PrerequisiteErrors)) else ()
        for one in several:
            self.insist(f"error: {with_line(one)}\n")
        self.insist(f"error: {error.what if several else with_line(error)}")

    def clear_line(self) -> None:
        """Wipe the current line, in which another console may have left transient text."""
        if self.has_motion:
            with nobody_reads():
                print("\r\x1b[2K", end="", file=self._err, flush=True)

    def _close_line(self) -> None:
        if self._open_line:
            with nobody_reads():
                print(f"\r{' ' * self._open_line}\r", end="", file=self._err, flush=True)
            self._open_line = 0


def with_line(error: GymctlError) -> str:
    """The message, with the line of the YAML file that it is about."""
    if not isinstance(error.where, Place):
        return str(error)
    from gymctl.config.telling.excerpt import excerpt  # PyYAML, only for an error in a file

    return error.text(excerpt(error.where))


class ConsoleReporter:
    """runtime.stack.Reporter on a console: `  images         3 in use · 1 built`."""

    def __init__(self, console: Console, names: Iterable[str] = ()) -> None:
        self._console = console
        self._width = max([NAME_WIDTH, *map(len, names)])

    def step(self, name: str, text: str) -> None:
        self._console.say(f"  {name:<{self._width}} {text}")

    def note(self, text: str) -> None:
        self._console.insist(text)

    def progress(self, text: str) -> None:
        self._console.transient(f"  {text}")


def reporter(console: Console | None = None, names: Iterable[str] = ()) -> ConsoleReporter:
    """`names`: the servers that steps will be about, so that the first line knows how wide the last is."""
    return ConsoleReporter(console or Console(), names)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of an aligned table, two spaces between columns, no trailing blanks."""
    body = [["" if cell is None else str(cell) for cell in row] for row in rows]
    cells = [list(header), *body]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    is_number = [bool(body) and all(_is_number(row[column]) for row in body) for column in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in cells
    ]


def inline(value: object) -> str:
    """One line of JSON, which YAML reads too; plain text without quotes."""
    if isinstance(value, str) and value.isprintable() and value == value.strip() and value:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_number(cell: str) -> bool:
    try:
        float(cell.rstrip("%").replace(",", "") or "0")
    except ValueError:
        return False
    return True


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 80
