"""`gymctl why --up`: why the last start failed, and which servers of a running project have stopped."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymctl.cli.output import Console
from gymctl.contract.servers import KINDS
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.runtime.failure import StartFailure

_LOG_LINES = 20
_KINDS = (  # what a server logged may name an image, too
    (r"has another hash than it should", "not as it was locked"),
    (r"port \d+ of .* in use|address already in use", "port taken"),
    (r"no space left|MB are free", "disk full"),
    (r"out of memory", "out of memory"),
    (r"No module named", "package missing"),
    (r"\A[^\n]*(image|did not build|pull)", "image missing"),
    (rf"^ *--> [\w.-]+\.({'|'.join(KINDS)})\.", "wrong configuration"),
    (r"did not answer within", "too slow to start"),
    (r"stopped before it was ready", "stopped"),
)
_SERVER = re.compile(r"`([\w.-]+)`")
_PORT_OWNER = re.compile(r"port \d+ of (?:the )?`?([\w.-]+)`?")


def show(console: Console, project: str | None, *, is_json: bool) -> None:
    """Raises UsageError when nothing failed here."""
    from gymctl.runtime import failure

    found = [one for one in failure.all_in() if project in (None, one.project)]
    dead = _dead(project)
    if is_json:
        console.json(
            {
                "start": _record(found[-1]) if found else None,
                "stopped": [_stopped_record(*one) for one in dead],
            }
        )
        return
    if not found and not dead:
        what = f"of `{project}` " if project else ""
        raise UsageError(
            f"no start {what}failed in this folder, and no server has stopped",
            hint="gymctl ps shows what runs; gymctl why RUN is about rollouts",
        )
    lines = [*(_start_lines(found[-1]) if found else [])]
    for server, text, log in dead:
        lines += [*([""] if lines else []), f"infrastructure · {server} · {text}", *_quoted(log)]
        lines.append(f"   fix    gymctl logs {server}; mend it, then gymctl up again")
    console.data("\n".join(lines))


def kind_of(failure: StartFailure) -> str:
    """`port taken`, `image missing`, … from the words of our own errors."""
    text = "\n".join([failure.what, *failure.details])
    return next((kind for pattern, kind in _KINDS if re.search(pattern, text, re.I | re.M)), failure.what)


def server_of(failure: StartFailure) -> str | None:
    """The server that the error is about."""
    owner = _PORT_OWNER.search(failure.what)
    if owner is not None:
        return owner[1]
    named = _SERVER.search(failure.what)
    return named[1] if named else None


def _start_lines(failure: StartFailure) -> list[str]:
    when = time.strftime("%H:%M", time.localtime(failure.at))
    server = server_of(failure) or failure.project
    lines = [
        f"infrastructure · {server} · {kind_of(failure)}      {failure.project}   {when}",
        f"   {failure.what}",
    ]
    if failure.where:
        lines.append(f"   --> {failure.where}")
    lines += _quoted(failure.details)
    lines.append(f"   fix    {failure.hint or 'see the lines above'}, then gymctl up again")
    return lines


def _quoted(lines: Sequence[str]) -> list[str]:
    return [f"   | {line}" for line in lines[-_LOG_LINES - 4 :]]


def _dead(project: str | None) -> list[tuple[str, str, list[str]]]:
    """Servers of running projects that have stopped: name, how, last lines."""
    import asyncio

    from gymctl.cli.projects import find
    from gymctl.config.tree.masking import redact
    from gymctl.runtime import attach
    from gymctl.runtime.at_rest import secrets_of

    stacks = [find(one.project) for one in attach.projects() if project in (None, one.project)]

    async def look() -> list[tuple[str, str, list[str]]]:
        found = []
        for stack in stacks:
            for row in await stack.status():
                if row.state == "failed":
                    end = "out of memory" if row.was_out_of_memory else f"stopped (exit {row.exit_code})"
                    lines = await stack.last_lines(row.server)
                    found.append((row.server, end, [redact(line, secrets_of(stack.paths)) for line in lines]))
        return found

    return asyncio.run(look())


def _record(failure: StartFailure) -> dict[str, Any]:
    return {
        "project": failure.project,
        "at": failure.at,
        "class": "infrastructure",
        "server": server_of(failure),
        "cause": kind_of(failure),
        "what": failure.what,
        "where": failure.where,
        "fix": failure.hint,
        "exit_code": failure.exit_code,
        "lines": list(failure.details),
    }


def _stopped_record(server: str, text: str, lines: Sequence[str]) -> dict[str, Any]:
    return {"class": "infrastructure", "server": server, "cause": text, "lines": list(lines)}
