"""A word on the command line that names a benchmark in a registry: pulled, checked, and run with its lock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli.packed import Opened
from gymctl.cli.selection import Chosen, sort_tokens
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.artefacts.pulled import Pulled
    from gymctl.cli.interrupts import Interrupts
    from gymctl.cli.output import Console

PlainHttp = Annotated[
    bool,
    typer.Option("--plain-http", help="Talk to the registry without TLS; on this machine that is so anyway."),
]


SUFFIX = ".gymb"
"""Of a bundle."""


def opened(chosen: Chosen, console: Console, *, plain_http: bool = False) -> Opened:
    """Pull the benchmark that a free word names in a registry, or open the bundle that one names; without
    such a word nothing happens.

    Its digest is told, its files come before all others, and its name takes the place of the reference.
    Raises UsageError for two of them; else as `artefacts.pulled.pull`.
    """
    from gymctl.artefacts.reference import is_reference

    tokens: list[str] = list(chosen.given.get("tokens") or ())
    words = sort_tokens(tokens)[2]
    named = [word for word in words if word.endswith(SUFFIX) or is_reference(word)]
    if not named:
        return Opened(chosen)
    if len(named) > 1:
        raise UsageError("one benchmark from a registry or a bundle at a time", where=" ".join(named))
    if named[0].endswith(SUFFIX):
        from gymctl.cli.from_bundle import opened_bundle

        return opened_bundle(chosen, named[0], console)
    from gymctl.artefacts import reference
    from gymctl.artefacts.pulled import pull
    from gymctl.cli import interrupts

    wanted = reference.parse(named[0])

    async def main(_: Interrupts) -> Pulled:
        console.transient(f"  pulling {wanted}")
        return await pull(wanted, plain_http=plain_http)

    found = interrupts.run(main, console.insist)
    console.say(f"{found.reference}")
    bare = str(replace(found.reference, digest=None))
    named_by = (bare, found.reference.digest or "")
    return Opened.of(chosen, named[0], found.folder, found.manifest.benchmark, named_by)
