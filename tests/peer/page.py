"""The table of a catalogue run, between two marks of docs/compatibility.md; the rest is written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from peer.deviations import REASONS
from peer.server import Result, Rows

BEGIN, END = "<!-- table: make test-peer -->", "<!-- end of table -->"


def write(file: Path, results: Sequence[Result], package: str, total: int) -> None:
    """Put the table in place. Raises ValueError when the marks are not there."""
    text = file.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file}: {BEGIN} … {END} is not there")
    file.write_text(f"{before}{BEGIN}\n{_table(results, package, total)}\n{END}{after}", "utf-8")


def summary(results: Sequence[Result], total: int) -> str:
    """The figures of all in one line; `total` is how many servers there are."""
    built = sum(one.built is True for one in results)
    started = sum(one.started is True for one in results)
    checked = [one for one in results if is_checked(one)]
    whole = sum(one.equal == one.recorded for one in checked)
    rewards, recorded = sum(one.equal for one in checked), sum(one.recorded for one in checked)
    return (
        f"{len(results)} of {total} servers: {built} built, {started} started; "
        f"recorded rewards checked of {len(checked)}: "
        f"{rewards} of {recorded} equal, {whole} servers whole; "
        f"rows through their agent in {_ran(results, 'theirs')}, through ours in {_ran(results, 'ours')}"
    )


def line(one: Result) -> str:
    """One row of the table."""
    rewards = f"{one.equal}/{one.recorded}" if is_checked(one) else ""
    cells = (
        one.server,
        _yes(one.built),
        _yes(one.started),
        rewards,
        _rows(one.theirs),
        _rows(one.ours),
        _note(one),
    )
    return f"| {' | '.join(cells)} |"


def is_checked(one: Result) -> bool:
    """Whether its rewards say something: what a judge is asked for says nothing without one."""
    is_judged = "judge" not in one.needs or one.equal == one.recorded or one.server in REASONS
    has_rewards = one.equal > 0 or any(each["now"] is not None for each in one.different)
    return bool(one.started and has_rewards and is_judged)


def _table(results: Sequence[Result], package: str, total: int) -> str:
    head = "| server | built | started | rewards equal | rows, their agent | rows, ours | note |"
    rule = "| --- | --- | --- | --- | --- | --- | --- |"
    return "\n".join(["", f"{package}: {summary(results, total)}.", "", head, rule, *map(line, results), ""])


def _ran(results: Sequence[Result], side: str) -> int:
    rows = [getattr(one, side) for one in results]
    return sum(one is not None and one.scored == one.asked > 0 for one in rows)


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[value]


def _rows(rows: Rows | None) -> str:
    return "" if rows is None else f"{rows.scored}/{rows.asked}"


def _note(one: Result) -> str:
    needs = f"needs {', '.join(one.needs)}" if one.needs else ""
    reasons = [needs, one.config, one.note]
    if one.started and one.different and one.server in REASONS:
        reasons.append(REASONS[one.server])
    elif one.started and one.recorded and "judge" in one.needs and not is_checked(one):
        reasons.append("its rewards rest on the judge")
    elif one.different:
        reasons += [next((each["reason"] for each in one.different if each["reason"]), "")]
    reasons += [rows.reason for rows in (one.theirs, one.ours) if rows is not None]
    text = "; ".join(dict.fromkeys(" ".join(reason.split()) for reason in reasons if reason))
    return text.replace("|", "\\|").replace("<", "&lt;")[:240]
