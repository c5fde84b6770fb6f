"""Whether the lines of a run are still those that it wrote: the journal has the checksum of each."""

from __future__ import annotations

import zlib

from gymctl.contract.rollout import JOIN_KEY
from gymctl.paths import RunPaths
from gymctl.rollouts import journal
from gymctl.rollouts.encoding import loads
from gymctl.rollouts.lines import numbered

_NAMED = 5


def altered(paths: RunPaths) -> list[str]:
    """Ids of rollouts whose line is not what the journal saw written. A line that it does not know (the run
    was killed before the journal's word, or another tool wrote it) is none of them."""
    written = {event["crc32"] for event in journal.events(paths.journal) if _is_score(event)}
    unknown: set[str] = set()
    with paths.rollouts.open("rb") as file:
        for line in numbered(file):
            if zlib.crc32(line.text) not in written:
                unknown.add(_rollout(line.text))
    if not unknown:
        return []
    ended = (event.get("rollout") for event in journal.events(paths.journal) if _is_score(event))
    return sorted(unknown.intersection(str(rollout) for rollout in ended))


def note(rollouts: list[str]) -> str:
    """`2 rollouts are not as this run wrote them: 0-0, 3-1`."""
    names = ", ".join(rollouts[:_NAMED]) + (", …" if len(rollouts) > _NAMED else "")
    if len(rollouts) == 1:
        return f"1 rollout is not as this run wrote it: {names}; --fresh makes all again"
    return f"{len(rollouts):,} rollouts are not as this run wrote them: {names}; --fresh makes all again"


def _is_score(event: dict[str, object]) -> bool:
    return event.get("event") == "ended" and event.get("file") == "rollouts"


def _rollout(line: bytes) -> str:
    try:
        record = loads(line)
    except (ValueError, RecursionError):
        return ""
    return str(record.get(JOIN_KEY)) if isinstance(record, dict) else ""
