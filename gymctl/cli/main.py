"""The `gymctl` program: its commands, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
import typer.exceptions

from gymctl import __version__
from gymctl.cli import json_errors
from gymctl.cli.entry import Ended, ignore, interrupting, listen
from gymctl.cli.output import Console, ReaderGone
from gymctl.errors import EXIT_BUG, GymctlError, Interrupted, PrerequisiteError, first_cause

Fail = Callable[[GymctlError | str, int], None]

COMMANDS = (
    "eval",
    "metrics",
    "compare",
    "why",
    "health-check",
    "reverify",
    "verify",
    "rerun",
    "up",
    "ps",
    "logs",
    "down",
    "clean",
    "build",
    "list",
    "doctor",
    "gym-dir",
    "push",
    "bundle",
    "unbundle",
)
GROUPS = ("cache", "config", "dataset", "export", "passport")
HELP = """Evaluate LLM agents in environments, one container per server.

gymctl eval arithmetic --model-type llama_cpp_model --limit 20 -k 2

Exit codes: 0 done, 1 configuration, 2 usage, 3 something is missing (engine, port, disk), 4 build or start
failed, 5 a server died, 6 the run is incomplete or its coverage too low, 7 a gate said no, 8 a cap was
reached, 9 something is not what its digest says, 70 a bug, 129/130/143 interrupted.
"""


def application() -> typer.Typer:
    """The Typer application. Command modules are light; what they need is imported when they run."""
    app = typer.Typer(
        name="gymctl",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in COMMANDS:
        module = importlib.import_module(f"gymctl.cli.{name.replace('-', '_')}")
        app.command(name)(module.command)
    for name in GROUPS:
        module = importlib.import_module(f"gymctl.cli.{name}")
        app.add_typer(module.app, name=name)
    return app


def _show_version(is_asked: bool) -> None:
    if is_asked:
        Console().data(f"gymctl {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Options of every command."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program on `argv` (default: the process's own arguments) and exit with the documented code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if "--json" not in arguments:
        sys.exit(_run(arguments, is_debug=is_debug))
    with json_errors.watched() as stdout:
        code = _run(arguments, is_debug=is_debug, fail=stdout.fail)
    sys.exit(code)


def _run(arguments: list[str], *, is_debug: bool, fail: Fail = lambda error, code: None) -> int:
    """fail: told of an error and its exit code, beside stderr."""
    console = Console()
    try:
        # Outside of standalone mode Typer returns the code of an Exit; a command's own result is None.
        program = typer.main.get_command(application())
        listen()
        code = program.main(args=arguments, prog_name="gymctl", standalone_mode=False)
    except GymctlError as error:
        if is_debug:
            sys.stderr.write(_traceback(error))
        console.error(error)
        fail(error, error.exit_code)
        if isinstance(error, Interrupted):
            ignore()
        return error.exit_code
    except typer.exceptions.TyperException as error:
        # Typer brings a Click of its own; this is the one public base of its usage errors.
        text = error.format_message()
        console.insist(text if text.startswith("Usage:") else f"error: {text}")
        fail(text, error.exit_code)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort, Ended) as error:
        return _interrupted(interrupting(error) or 130, console, fail)
    except ReaderGone:
        # Else the interpreter tries once more, when it ends, to write what nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the border: whatever arrives here is a bug of ours
        if is_debug:
            sys.stderr.write(_traceback(error))
        refused = _refused_by_disk(error)
        if (code := interrupting(error)) is not None:
            return _interrupted(code, console, fail)
        if refused is not None:
            console.error(refused)
            fail(refused, refused.exit_code)
            return refused.exit_code
        console.clear_line()
        console.insist(_bug_report(error))
        fail(f"a bug in gymctl: {type(error).__name__}", EXIT_BUG)
        return EXIT_BUG
    if code == 130:  # Typer's own, for Ctrl+C before a command has begun to listen
        return _interrupted(code, console, fail)
    return code if isinstance(code, int) else 0


def run_words(words: Sequence[str]) -> None:
    """One command inside of another, `words` without the program. Raises what it raises."""
    program = typer.main.get_command(application())
    if program.main(args=list(words), prog_name="gymctl", standalone_mode=False) == 130:
        raise KeyboardInterrupt  # Typer has made a code of it


def _interrupted(code: int, console: Console, fail: Fail) -> int:
    ignore()
    console.clear_line()
    console.insist("error: interrupted")
    fail("interrupted", code)
    return code


def _refused_by_disk(error: BaseException) -> PrerequisiteError | None:
    """A disk may be full or read-only, or closed to this user, at any of the files that we use, or the folder
    that we are in be gone; that is no bug."""
    if isinstance(error, BaseExceptionGroup):
        error = first_cause(error)
    if not isinstance(error, OSError):
        return None
    where = None if error.filename is None else os.fsdecode(error.filename)
    if where is None and error.errno == errno.ENOENT:  # of `getcwd`; everything else names its file
        return PrerequisiteError("the current folder is not there any more", hint="go to another one: cd")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return PrerequisiteError(f"a file cannot be written: {error.strerror}", where=where)
    if where is not None and error.errno in (errno.EACCES, errno.ENAMETOOLONG):
        return PrerequisiteError(f"a file cannot be used: {error.strerror}", where=where)
    return None


def _traceback(error: Exception) -> str:
    """Without secrets: some errors quote what they were given."""
    try:
        from gymctl.cli import hidden
        from gymctl.config.tree.masking import redact

        return redact("".join(traceback.format_exception(error)), hidden.secrets())
    except Exception:  # noqa: BLE001 - a second bug must neither hide the first nor what is secret
        return "".join((*traceback.format_tb(error.__traceback__), f"{type(error).__name__}\n"))


def _bug_report(error: Exception) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="gymctl-bug-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(_traceback(error))
    return (
        f"error: a bug in gymctl: {type(error).__name__}\n"
        f"  --> {Path(file.name)}\n"
        "hint: please report it with that file; --debug shows the traceback here"
    )


if __name__ == "__main__":
    main()
