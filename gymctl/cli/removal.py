"""What `clean` and `cache prune` have in common: show what would go, ask, remove, tell what stayed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from gymctl.cli.amounts import size
from gymctl.cli.output import Console
from gymctl.counts import counted

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that may go."""

    kind: str
    name: str
    why: str
    size: int | None
    """Bytes that come free; None where it takes none worth telling."""
    remove: Callable[[], str | None]
    """None when it is gone, else why it stays."""


def run(console: Console, found: Sequence[Candidate], *, dry_run: bool, yes: bool, is_json: bool) -> None:
    """Removes with `yes`, or where a person at a terminal agrees; else nothing but a list is the result."""
    total = sum(one.size or 0 for one in found)
    is_asked = not yes and not dry_run and not is_json and sys.stdin.isatty()
    if not is_json:
        _show(console, found, total)
    if not found and not is_json:
        return
    will_remove = yes and not dry_run
    if is_asked:
        things = "this" if len(found) == 1 else f"these {len(found)}"
        will_remove = typer.confirm(f"Remove {things}?", default=False, err=True)
    stayed = _remove(console, found) if will_remove else {}
    if is_json:
        rows = [
            {
                "kind": one.kind,
                "name": one.name,
                "why": one.why,
                "size": one.size,
                "is_removed": will_remove and number not in stayed,
                **({"stays": stayed[number]} if number in stayed else {}),
            }
            for number, one in enumerate(found)
        ]
        console.json(rows)
    elif will_remove:
        console.say(f"removed {len(found) - len(stayed)} of {len(found)}")
    else:
        console.say("nothing was removed" + ("" if is_asked or dry_run else "; --yes removes it"))


def _show(console: Console, found: Sequence[Candidate], total: int) -> None:
    if not found:
        console.say("nothing to remove")
        return
    rows = [(one.kind, one.name, one.why, "" if one.size is None else size(one.size)) for one in found]
    console.table(("WHAT", "NAME", "WHY", "SIZE"), rows)
    console.say(f"{counted(len(found), 'thing')}, at least {size(total)}")


def _remove(console: Console, found: Sequence[Candidate]) -> dict[int, str]:
    stayed: dict[int, str] = {}
    for number, one in enumerate(found):
        console.transient(f"removing {one.name}")
        reason = one.remove()
        if reason is not None:
            stayed[number] = reason
            console.insist(f"{one.kind} {one.name} stays: {reason}")
    console.clear_line()
    return stayed
