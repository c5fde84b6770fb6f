"""Which images a run ran: `images.lock.json` beside its passport, and how a later session's differ."""

from __future__ import annotations

from collections.abc import Iterator

from gymctl.cli.output import Console
from gymctl.errors import IntegrityError
from gymctl.images.lock import Lock, read
from gymctl.rollouts.differences import short
from gymctl.rollouts.run import Run
from gymctl.runtime.stack import Stack


async def note(run: Run, stack: Stack, console: Console) -> None:
    """Give the run its lock; the first one of a run that is gone on with stays."""
    lock = await stack.lock()
    if lock is None:
        return
    found = list(_differences(_first(run), lock)) if run.is_resumed else []
    for text in found:
        console.insist(f"note: another image than when the run was begun: {text}")
    run.note_lock(lock.text(), found)


def _first(run: Run) -> Lock | None:
    """None: the run was begun without containers, or by a gymctl that wrote no lock."""
    try:
        return read(run.paths.lock)
    except IntegrityError:
        return None


def _differences(first: Lock | None, now: Lock) -> Iterator[str]:
    if first is None:
        return
    for image in now.images:
        old = first.find(image.name, image.platform, image.context)
        if old is None:
            yield f"image {image.name}: nothing → {short(image.id)}"
        elif old.id != image.id:
            yield f"image {image.name}: {short(old.id)} → {short(image.id)}"
