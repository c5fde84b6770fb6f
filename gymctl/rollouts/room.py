"""How many rollouts fit into what a process may open."""

from __future__ import annotations

import resource
from collections.abc import Iterable

from gymctl.transport import Transport

_DESCRIPTORS_PER_ROLLOUT = 2
"""A relay holds two connections, one to each side; here it is one."""
_SPARE_DESCRIPTORS = 256
"""For files, logs, pipes, and connections that just close."""
_ENOUGH_DESCRIPTORS = 4096
"""For a process whose calls do not hold connections while they wait."""


async def room_for(concurrency: int, transport: Transport, entrances: Iterable[str]) -> int | None:
    """How many rollouts fit into what this process may open, and a server with the same limit; the limit is
    raised as far as it may be. None: as many as one likes; so it is, too, where all environment servers can
    answer later (`entrances` are their URLs)."""
    soft = _raised(concurrency * _DESCRIPTORS_PER_ROLLOUT + _SPARE_DESCRIPTORS)
    if soft is None:
        return None
    room = max(1, (soft - min(_SPARE_DESCRIPTORS, soft // 4)) // _DESCRIPTORS_PER_ROLLOUT)
    if room < concurrency and soft >= _ENOUGH_DESCRIPTORS:
        offers = [await transport.answers_later(url) for url in entrances]
        return None if offers and all(offers) else room
    return room


def _raised(wanted: int) -> int | None:
    """The limit of open files afterwards; None: there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return None if soft == resource.RLIM_INFINITY else soft
