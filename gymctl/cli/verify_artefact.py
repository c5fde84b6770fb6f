"""`gymctl verify LOCK|REF`: what a registry holds, held to the digests that a lock or a reference names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymctl.artefacts.verified import BENCHMARK, SIZE_ONLY
from gymctl.cli.output import Console
from gymctl.counts import counted
from gymctl.errors import IntegrityError

if TYPE_CHECKING:
    from gymctl.cli.interrupts import Interrupts
    from gymctl.engine import Engine
    from gymctl.rollouts.findings import Finding


def verify(
    what: str,
    *,
    is_lock: bool,
    is_strict: bool,
    is_deep: bool,
    plain_http: bool,
    is_verbose: bool,
    as_json: bool,
) -> None:
    """Print the findings. Raises IntegrityError (something differs); else as `artefacts.verified`."""
    from gymctl.artefacts import reference
    from gymctl.artefacts.verified import Registries, lock_findings, reference_findings
    from gymctl.cli import interrupts
    from gymctl.images import lock as locks

    console = Console()
    engine = _engine()

    async def main(_: Interrupts) -> list[Finding]:
        async with Registries(plain_http) as registries:
            if is_lock:
                lock = locks.read(Path(what))
                if not lock.images:
                    raise IntegrityError("the lock names no image", where=what)
                return await lock_findings(lock, registries, engine, is_deep=is_deep)
            wanted = reference.parse(what)
            return await reference_findings(wanted, registries, engine, is_deep=is_deep)

    found = interrupts.run(main, console.insist)
    wrong = [one for one in found if one.fails(is_strict=is_strict)]
    if as_json:
        differs = [one.name for one in found if one.status == "differs"]
        console.json({"what": what, "findings": [one.to_json() for one in found], "differs": differs})
    else:
        rows = [(one.name, one.status, one.detail) for one in found] if is_verbose else list(by_thing(found))
        console.table(("THING", "IS", ""), rows)
    if wrong:
        raise IntegrityError(
            f"{len(wrong)} of {counted(len(found), 'thing')} "
            f"{'is not what its digest says' if len(wrong) == 1 else 'are not what their digests say'}",
            where=what,
            details=[f"{one.name}: {one.status}{f', {one.detail}' if one.detail else ''}" for one in wrong],
        )


def by_thing(found: Iterable[Finding]) -> Iterator[tuple[str, str, str]]:
    """A line for each image, and one for the benchmark, with what of it is ok; then what of it is not."""
    things: dict[str, list[Finding]] = {}
    for one in found:
        things.setdefault(one.thing, []).append(one)
    for thing, parts in things.items():
        good = [_part(one) for one in parts if one.status == "ok"]
        bad = [(one.name, one.status, one.detail) for one in parts if one.status != "ok"]
        if not bad:
            yield thing, "ok", _listed(good)
        elif len(bad) == 1:  # on one line with the rest
            name, status, detail = bad[0]
            also = f" · ok: {_listed(good)}" if good else ""
            yield thing, status, f"{name.removeprefix(f'{thing} ')}: {detail}{also}"
        else:
            yield thing, _worst(parts), f"ok: {_listed(good)}" if good else ""
            yield from bad


def _part(one: Finding) -> tuple[str, bool]:
    """`layer` of `resources_servers/weather layer 3`, and whether only its size was looked at."""
    name = one.name.removeprefix(f"{one.thing} ")
    if one.thing == BENCHMARK and name not in ("manifest", "tag", "files"):
        name = "file of rows" if name.startswith("rows of ") else "layer"
    return re.sub(r"^layer \d+$", "layer", name), one.detail.endswith(SIZE_ONLY)


_MANY = {"file of rows": "files of rows"}


def _listed(parts: Sequence[tuple[str, bool]]) -> str:
    """`manifest, tag, configuration, 7 layers (sizes), SBOM · here as 2 names`."""
    counts = Counter(name for name, _ in parts)
    of_size = {name for name, is_size in parts if is_size}
    here = counts.pop("here", 0)
    told = {name: name if one == 1 else counted(one, name, _MANY.get(name)) for name, one in counts.items()}
    texts = [f"{text} (sizes)" if name in of_size else text for name, text in told.items()]
    known = f"here as {counted(here, 'name')}" if here else ""
    return " · ".join(filter(None, [", ".join(texts), known]))


def _worst(parts: Iterable[Finding]) -> str:
    return max((one.status for one in parts), key=("ok", "not recorded", "gone", "differs").index)


def _engine() -> Engine | None:
    """None where none answers: then only the registry is looked at."""
    from gymctl import engine

    return engine.Engine.connect() if engine.answers() else None
