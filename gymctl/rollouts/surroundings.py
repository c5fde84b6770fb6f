"""What a run's servers run in, for its passport: images, limits that hold, engine, compose file, lock, clock.

A stack is known here by what it can tell (runtime.stack.Stack can): whoever makes a run on one gives it this.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from gymctl.rollouts.differences import short
from gymctl.rollouts.passport import Passport, ServerSeen, Surroundings, surrounded
from gymctl.rollouts.seal import COMPOSE, LOCK

_TIMEX_BYTES = 256
_TIME_ERROR = 5


class Limits(Protocol):
    """runtime.inforce.InForce."""

    @property
    def cgroup(self) -> str | None: ...
    @property
    def memory_bytes(self) -> int | None: ...
    @property
    def cpus(self) -> float | None: ...
    @property
    def pids(self) -> int | None: ...


class Facts(Protocol):
    """runtime.stack.ServerFacts."""

    @property
    def limits(self) -> Limits: ...
    @property
    def image(self) -> str | None: ...
    @property
    def image_id(self) -> str | None: ...
    @property
    def digest(self) -> str | None: ...
    @property
    def profile(self) -> str | None: ...


class AllFacts(Protocol):
    """runtime.stack.StackFacts."""

    @property
    def servers(self) -> Mapping[str, Facts]: ...
    @property
    def engine(self) -> str | None: ...
    @property
    def compose(self) -> str | None: ...
    @property
    def compose_text(self) -> str | None: ...


class Image(Protocol):
    """images.lock.LockedImage."""

    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> str | None: ...


class Lock(Protocol):
    """images.lock.Lock."""

    @property
    def images(self) -> Sequence[Image]: ...
    def text(self) -> str: ...


class Stack(Protocol):
    """runtime.stack.Stack."""

    @property
    def runtime(self) -> str: ...
    async def facts(self) -> AllFacts: ...
    async def lock(self) -> Lock | None: ...


async def look(stack: Stack | None, environments: Mapping[str, str] | None = None) -> Surroundings:
    """`stack` is None when only a head is known: then it tells of the clock alone. environments: of a stack
    without containers, by server, the digest of what its packages are installed from."""
    clock = is_clock_synchronized()
    if stack is None:
        return Surroundings(is_clock_synchronized=clock)
    facts, lock = await stack.facts(), await stack.lock()
    known = environments or {}
    # An engine with the containerd store calls an image by its manifest; a passport by its configuration.
    ids = {one.digest: one.id for one in (lock.images if lock is not None else ()) if one.digest is not None}
    documents = {COMPOSE: facts.compose_text, LOCK: None if lock is None else lock.text()}
    return Surroundings(
        servers={name: _seen(one, known.get(name), ids) for name, one in sorted(facts.servers.items())},
        runtime=stack.runtime,
        engine=facts.engine,
        compose=facts.compose,
        is_clock_synchronized=clock,
        documents={name: text for name, text in documents.items() if text is not None},
    )


def noted(
    told: Passport, seen: Surroundings, first: bytes | None = None
) -> tuple[Passport, dict[str, str], list[str]]:
    """The passport with what is seen, the documents to be written, and which images are others than before.

    first: the lock of a run that is gone on with. It stays; what differs is noted with this session.
    """
    told, documents = surrounded(told, seen), dict(seen.documents)
    if first is None or LOCK not in documents:
        return told, documents, []
    others = list(other_images(first, documents.pop(LOCK)))
    if others and told.continued:
        *earlier, last = told.continued
        last = last.model_copy(update={"in_spite_of": [*last.in_spite_of, *others]})
        told = told.model_copy(update={"continued": [*earlier, last]})
    return told, documents, others


def other_images(first: bytes, now: str) -> Iterator[str]:
    """How the images of a lock differ from those of the lock of the run's beginning, as sentences."""
    old = _ids(first)
    by_name = {key[:2]: id for key, id in reversed(old.items())}
    for key, id in _ids(now).items():
        before = old.get(key) or by_name.get(key[:2])
        if old and before != id:
            yield f"image {key[0]}: {short(before)} → {short(id)}"


def is_clock_synchronized() -> bool | None:
    """By the kernel's own word (adjtimex); None where it cannot be asked."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _ids(lock: bytes | str) -> dict[tuple[Any, Any, Any], Any]:
    """By name, platform and context. Nothing of a file that is no lock: then there is nothing to compare."""
    try:
        found = json.loads(lock)["images"]
        return {(one["name"], one["platform"], one["context"]): one["id"] for one in found}
    except (ValueError, LookupError, TypeError):
        return {}


def _seen(facts: Facts, environment: str | None, ids: Mapping[str, str]) -> ServerSeen:
    limits, image = facts.limits, facts.image_id
    return ServerSeen(
        image=facts.image,
        id=None if image is None else ids.get(image, image),
        digest=facts.digest,
        environment=environment,
        profile=facts.profile,
        cgroup=limits.cgroup,
        memory_bytes=limits.memory_bytes,
        cpus=limits.cpus,
        pids=limits.pids,
    )
