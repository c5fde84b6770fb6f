"""`gymctl verify LOCK|REF`: what a registry holds, held to the digests that a lock or a reference names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymctl.cli.output import Console
from gymctl.errors import IntegrityError

if TYPE_CHECKING:
    from gymctl.cli.interrupts import Interrupts
    from gymctl.engine import Engine
    from gymctl.rollouts.findings import Finding


def verify(
    what: str, *, is_lock: bool, is_strict: bool, is_deep: bool, plain_http: bool, as_json: bool
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
                return await lock_findings(locks.read(Path(what)), registries, engine, is_deep=is_deep)
            wanted = reference.parse(what)
            return await reference_findings(wanted, registries, engine, is_deep=is_deep)

    found = interrupts.run(main, console.insist)
    wrong = [one for one in found if one.fails(is_strict=is_strict)]
    if as_json:
        differs = [one.name for one in found if one.status == "differs"]
        console.json({"what": what, "findings": [one.to_json() for one in found], "differs": differs})
    else:
        console.table(("THING", "IS", ""), [(one.name, one.status, one.detail) for one in found])
    if wrong:
        raise IntegrityError(
            f"{len(wrong)} of {len(found)} things are not what their digests say",
            where=what,
            details=[f"{one.name}: {one.status}{f', {one.detail}' if one.detail else ''}" for one in wrong],
        )


def _engine() -> Engine | None:
    """None where none answers: then only the registry is looked at."""
    from gymctl import engine

    return engine.Engine.connect() if engine.answers() else None
