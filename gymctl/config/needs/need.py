"""One thing that a server needs, and the line that says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gymctl.errors import Place

NeedKind = Literal["gpu", "sandbox", "judge", "ray", "network", "git", "key", "setting", "programs", "python"]
MEANINGS: dict[NeedKind, str] = {
    "gpu": "a GPU",
    "sandbox": "a sandbox: a provider, an engine or a service that runs what a model wrote",
    "judge": "another model than the one it is asked about: a judge, a simulated user",
    "ray": "a Ray cluster that runs its tasks",
    "network": "something from the network while its image is built, when it starts or when it runs",
    "git": "a package from a repository or URL instead of an index",
    "key": "a key of a service",
    "setting": "a value that its config leaves open",
    "programs": "programs that are no Python packages",
    "python": "a Python of a certain version",
}


@dataclass(frozen=True, slots=True)
class Need:
    """Text can mislead: it shows what a server is able to ask for, not what a run will ask for."""

    kind: NeedKind
    what: str
    where: Place
    is_certain: bool = False
    """Without it the server does not start, whatever its settings."""


def distinct(needs: Iterable[Need]) -> tuple[Need, ...]:
    """The first of each kind and text; a certain one goes before a likely one."""
    found: dict[tuple[NeedKind, str], Need] = {}
    for need in needs:
        known = found.setdefault((need.kind, need.what), need)
        if need.is_certain and not known.is_certain:
            found[need.kind, need.what] = need
    return tuple(sorted(found.values(), key=lambda need: list(MEANINGS).index(need.kind)))
