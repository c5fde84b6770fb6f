"""What `gymctl why` prints. Messages and log lines may quote a model: only with --content, fenced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gymctl.counts import counted
from gymctl.metrics.fingerprint import server_of, signs
from gymctl.rollouts.journal import End
from gymctl.rollouts.saved import Key, SavedRun
from gymctl.rollouts.why import Attempt, Group, Reasons, ended_at

Shown = Callable[[str], str] | None
"""Takes secrets out of a text that is to be shown; None: no text of others is shown."""
_SHOWN_IDS = 8
_LOG_LINES = 20
FENCE = "   ------ not trusted: may quote a model ------"
FENCE_END = "   --------------------------------------------"
_RECORD_KEYS = (
    "_ng_failure_message",
    "_ng_failure_response_body",
    "_ng_failure_judge_error",
    "failure_reason",
)


def reasons_lines(run: SavedRun, told: Reasons, groups: Sequence[Group], *, shown: Shown) -> list[str]:
    """The text for people."""
    lines = [_headline(told, groups)]
    for number, group in enumerate(groups, 1):
        lines += ["", *_group(run, number, group, shown=shown)]
    if told.not_run:
        lines += ["", f"   not run: {told.not_run:,}, {_why_not_run(told.end)}"]
    if told.repaired:
        lines += ["", f"   {told.repaired:,} more attempts failed and were made good by later ones"]
    return lines


def _why_not_run(end: End | str | None) -> str:
    """`the time cap of 14 min was reached`, and what makes the rest."""
    match end:
        case End("cap", "--max-time" | "--max-tokens" | "--max-cost" as flag, limit):
            of = "" if limit is None else f" of {_limit(flag, limit)}"
            kind = {"--max-time": "time", "--max-tokens": "token", "--max-cost": "cost"}[flag]
            return f"the {kind} cap{of} was reached; the same eval with a higher {flag} makes them"
        case End("cap", what):
            return f"{what} was reached; the same eval again makes them"
        case End("lost", server):
            return f"{server} was lost; the same eval again makes them"
        case End("interrupted"):
            return "the run was interrupted; the same eval again makes them"
        case End("error"):
            return "the run ended with an error; the same eval again makes them"
        case "none":
            return "the run was killed, if it does not still run; the same eval again makes them"
        case _:
            return "the same eval again makes them"


def _limit(flag: str, limit: float) -> str:
    if flag == "--max-cost":
        return f"${limit:,.2f}"
    if flag == "--max-tokens":
        return f"{limit:,.0f}"
    return f"{limit / 60:,.3g} min" if limit >= 60 else f"{limit:,.3g} s"


def _headline(told: Reasons, groups: Sequence[Group]) -> str:
    if not told.failed and not told.not_run:
        return f"{'the rollout has' if told.scored == 1 else f'all {told.scored:,} rollouts have'} a score"
    failed = sum(group.count for group in groups)
    rollouts = counted(told.scored + told.failed + told.not_run, "rollout")
    return f"{counted(len(groups), 'cause')} left {failed:,} of {rollouts} without a score"


def _group(run: SavedRun, number: int, group: Group, *, shown: Shown) -> Iterator[str]:
    found = group.found
    head = " · ".join(part for part in (found.failure, found.server, group.advice.cause) if part)
    rollouts = counted(group.count, "rollout")
    yield f"{number}  {head}      {rollouts}{_span(group.first, group.last)}"
    yield f"   {_ids(group)}      {found.kind}"
    if shown is not None:
        yield from _content(run, group.example, shown)
    yield f"   fix    {group.advice.fix}"


def _ids(group: Group) -> str:
    shown = ", ".join(group.ids[:_SHOWN_IDS])
    rest = group.count - min(len(group.ids), _SHOWN_IDS)
    return f"{shown} and {rest:,} more" if rest else shown


def _span(first: float | None, last: float | None) -> str:
    if first is None or last is None:
        return ""
    start, end = _clock(first), _clock(last)
    return f"      {start}" if start == end else f"      {start} – {end}"


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M", time.localtime(seconds))


def attempts_lines(run: SavedRun, key: Key, found: Sequence[Attempt], *, shown: Shown) -> list[str]:
    """All attempts at one rollout."""
    name = f"{key[0]}-{key[1]}"
    lines = [f"rollout {name} · {counted(len(found), 'attempt')}"]
    for attempt in found:
        ended = ended_at(attempt.record)
        when = "" if ended is None else f"      {_clock(ended)}"
        lines.append("")
        if attempt.found is None or attempt.advice is None:
            lines.append(f"{attempt.number + 1}  scored {attempt.reward}{when}")
            continue
        one = attempt.found
        head = " · ".join(part for part in (one.failure, one.server, attempt.advice.cause) if part)
        lines += [f"{attempt.number + 1}  {head}{when}", f"   {one.kind}"]
        if shown is not None:
            lines += _content(run, attempt.record, shown)
        lines.append(f"   fix    {attempt.advice.fix}")
    return lines


def _content(run: SavedRun, record: dict[str, Any], shown: Callable[[str], str]) -> Iterator[str]:
    yield FENCE
    for key in _RECORD_KEYS:
        value = record.get(key)
        if isinstance(value, str) and value:
            yield f"   | {key}: {_printable(shown(value))}"
    logs = _log_lines(run, server_of(record))
    if logs:
        yield f"   | last lines of {server_of(record)}:"
        yield from (f"   |   {_printable(shown(line))}" for line in logs)
    yield FENCE_END


def _log_lines(run: SavedRun, server: str) -> list[str]:
    """What was kept of a server that stopped during the run."""
    if not server or "/" in server:
        return []
    try:
        text = (run.paths.folder / "logs" / f"{server}.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines()[-_LOG_LINES:]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def reasons_json(run: SavedRun, told: Reasons, groups: Sequence[Group], *, shown: Shown) -> dict[str, Any]:
    return {
        "run": str(run.paths.rollouts),
        "scored": told.scored,
        "failed": told.failed,
        "not_run": told.not_run,
        "not_run_because": asdict(told.end) if isinstance(told.end, End) else None,
        "repaired_attempts": told.repaired,
        "groups": [
            {
                "class": group.found.failure,
                "server": group.found.server or None,
                "kind": group.found.kind,
                "cause": group.advice.cause,
                "fix": group.advice.fix,
                "count": group.count,
                "rollouts": group.ids,
                "first": group.first,
                "last": group.last,
                "example": _example(run, group.example, shown=shown),
            }
            for group in groups
        ],
    }


def attempts_json(run: SavedRun, key: Key, found: Sequence[Attempt], *, shown: Shown) -> dict[str, Any]:
    return {
        "run": str(run.paths.rollouts),
        "rollout": f"{key[0]}-{key[1]}",
        "attempts": [
            {
                "number": one.number,
                "reward": one.reward,
                "class": one.found.failure if one.found else None,
                "server": one.found.server if one.found else None,
                "kind": one.found.kind if one.found else None,
                "cause": one.advice.cause if one.advice else None,
                "fix": one.advice.fix if one.advice else None,
                "ended": ended_at(one.record),
                "example": _example(run, one.record, shown=shown),
            }
            for one in found
        ],
    }


def _example(run: SavedRun, record: dict[str, Any], *, shown: Shown) -> dict[str, Any]:
    """What of a record is ours; with content also what others said, under a key that says so."""
    found = signs(record)
    example: dict[str, Any] = {
        "status": found.status,
        "host": found.host or None,
        "exit_code": found.exit_code,
        "out_of_memory": found.is_out_of_memory,
    }
    if shown is not None:
        example["untrusted"] = {
            **{key: shown(record[key]) for key in _RECORD_KEYS if isinstance(record.get(key), str)},
            "log_lines": [shown(line) for line in _log_lines(run, server_of(record))],
        }
    return example
