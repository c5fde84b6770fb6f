"""Runs a program to its end: lines as they come, secrets cut out, nothing left running when cancelled."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import shlex
import signal
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymctl.errors import EngineError, PrerequisiteError

GRACE_SECONDS = 10.0
KEPT_LINES = 400
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_URL_LOGIN = re.compile(r"(\w://)[^/?#\s]+@")


@dataclass(frozen=True, slots=True)
class Finished:
    """A CLI step that ended: its exit code, its standard output whole, the last lines of both streams."""

    command: str
    """Masked, as it may be shown."""
    exit_code: int
    stdout: str
    last_lines: tuple[str, ...]

    def check(self, what: str, *, hint: str | None = None) -> Finished:
        """Return self, or raise EngineError with the command, its exit code and the last lines."""
        if self.exit_code == 0:
            return self
        details = (f"$ {self.command}", f"exit code {self.exit_code}", *self.last_lines[-15:])
        raise EngineError(what, details=details, hint=hint)


def mask(text: str, secrets: Collection[str] = ()) -> str:
    """Cut out secret values and the login part of URLs."""
    for secret in sorted((secret for secret in secrets if secret), key=len, reverse=True):
        text = text.replace(secret, "****")
    return _URL_LOGIN.sub(r"\1****@", text)


async def run_command(
    command: Sequence[str],
    *,
    on_line: Callable[[str], None] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    secrets: Collection[str] = (),
    keep_lines: int = KEPT_LINES,
    hint: str | None = None,
) -> Finished:
    """Run a command to its end and stream its lines (both streams) to `on_line`.

    When cancelled, the command and all its children are ended before CancelledError is raised. `secrets`
    are cut out of the lines and of the command that messages show. hint: what to do where it is missing.
    """
    # Shielded: a cancellation during the start must still find the process it has to end.
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(environ or {}), "DOCKER_CLI_HINTS": "false"},
            cwd=cwd,
            start_new_session=True,  # Ctrl+C in the terminal reaches us only; we end the child ourselves
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise
    except FileNotFoundError:
        raise PrerequisiteError(f"`{command[0]}` is not installed", hint=hint) from None
    out: list[str] = []
    last: deque[str] = deque(maxlen=keep_lines)

    def take(line: str) -> None:
        last.append(line)
        if on_line is not None:
            on_line(line)

    try:
        async with asyncio.TaskGroup() as readers:
            readers.create_task(_lines(process.stdout, secrets, take, out.append))
            readers.create_task(_lines(process.stderr, secrets, take))
        exit_code = await process.wait()
    except BaseException:
        await _end(process)
        raise
    return Finished(mask(shlex.join(command), secrets), exit_code, "\n".join(out), tuple(last))


async def _lines(
    stream: asyncio.StreamReader | None, secrets: Collection[str], *takers: Callable[[str], None]
) -> None:
    # Not readline(): it raises on a line longer than its buffer, and build logs have such lines.
    assert stream is not None

    def take(line: str) -> None:
        clean = mask(_ESCAPES.sub("", line).rstrip("\r").rsplit("\r", 1)[-1], secrets)
        for taker in takers:
            taker(clean)

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while chunk := await stream.read(65536):
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in lines:
            take(line)
    if rest:
        take(rest)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and its session: SIGTERM, then SIGKILL. A second cancellation ends the wait between."""
    ended = asyncio.ensure_future(process.wait())
    _signal(process, signal.SIGTERM)
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.wait_for(asyncio.shield(ended), GRACE_SECONDS)
    except TimeoutError:
        pass
    except asyncio.CancelledError as error:
        cancelled = error
    _signal(process, signal.SIGKILL)  # also what a child of it may have left behind in the session
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
