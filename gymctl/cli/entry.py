"""Where the programs begin and end: a signal is met before anything is imported that takes time.

    importing   nothing has been begun: a signal ends the process at once
    listening   SIGINT raises KeyboardInterrupt; SIGTERM and SIGHUP raise Ended, so that `finally` blocks run
    in a loop   `interrupts.Interrupts` decides; afterwards it is as before
    over        signals change nothing: the exit code is known

SIGHUP says that the terminal was closed. Where it is ignored when we start (`nohup`), it stays so.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # without `typing`: only what Python has loaded by itself
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # `signal` would import enum first


class Ended(SystemExit):
    """SIGTERM or SIGHUP outside of a loop. No Exception: nobody else is to catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.exit_code = 128 + number


def gymctl() -> None:
    """Console script `gymctl`."""
    _run("gymctl.cli.main", "main")


def gym() -> None:
    """Console scripts `gym` and `ng`."""
    _run("gymctl.cli.peer", "gym")


def ng() -> None:
    """Console scripts `ng_run`, `ng_collect_rollouts` and so on."""
    _run("gymctl.cli.peer", "ng")


def listen() -> None:
    """From now on things may be held. Nothing for a caller of `main` with signals of its own."""
    for number in _heard():
        if signal.getsignal(number) is _leave:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _end)


def interrupting(error: BaseException | None) -> int | None:
    """The exit code where a signal is behind `error`: what it strikes in may tell of it in its own way, as a
    class does that is just being made."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return 128 + signal.SIGINT
        if isinstance(error, Ended):
            return error.exit_code
        error = error.__cause__ or error.__context__
    return None


def ignore() -> None:
    """A second Ctrl+C while the interpreter ends must not change the exit code of the first."""
    for number in _heard():
        signal.signal(number, signal.SIG_IGN)


def leave_terminal(number: int) -> None:
    """After a SIGHUP: what is written to a terminal that is gone goes nowhere, and is no error."""
    if number != signal.SIGHUP:
        return
    import errno
    import termios

    for descriptor in (0, 1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)


def _run(module: str, name: str) -> None:
    try:
        for number in _heard():
            signal.signal(number, _leave)
        import importlib

        program = getattr(importlib.import_module(module), name)
        try:
            program()
        finally:
            ignore()
    except KeyboardInterrupt:  # where nobody else met it, as between two steps of the end
        _leave(signal.SIGINT, None)


def _heard() -> list[int]:
    """Those that are not ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def _end(number: int, frame: object) -> None:
    leave_terminal(number)
    raise Ended(number)


def _leave(number: int, frame: object) -> None:
    """Nothing was begun, and nothing is left to be ended."""
    try:
        if "--json" in sys.argv:
            rest = b'"where": null, "details": [], "hint": null, "exit_code": %d' % (128 + number)
            os.write(1, b'{"error": {"what": "interrupted", ' + rest + b"}}\n")
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(128 + number)
