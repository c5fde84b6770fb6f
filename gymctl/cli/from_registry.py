"""A word on the command line that names a benchmark in a registry: pulled, checked, and run with its lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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


@dataclass(frozen=True, slots=True)
class Opened:
    """What is run: the same as was chosen, or what a reference to a registry came to."""

    chosen: Chosen
    lock: Path | None = None
    """The lock that the benchmark brings: only its images are run."""
    benchmark: Mapping[str, str] | None = None
    """`reference` and `digest`, for the passport."""

    def locked_by(self, other: Path | None) -> Path | None:
        """The lock to run with; `other`: what --locked asks for. UsageError: both."""
        if self.lock is not None and other is not None:
            hint = "it brings its own lock; leave --locked and --lock out"
            raise UsageError("a benchmark from a registry runs locked anyway", where="--locked", hint=hint)
        return self.lock or other


def opened(chosen: Chosen, console: Console, *, plain_http: bool = False) -> Opened:
    """Pull the benchmark that a free word names in a registry; without such a word nothing happens.

    Its digest is told, its files come before all others, and its name takes the place of the reference.
    Raises UsageError for two of them; else as `artefacts.pulled.pull`.
    """
    from gymctl.artefacts.reference import is_reference

    tokens: list[str] = list(chosen.given.get("tokens") or ())
    named = [word for word in sort_tokens(tokens)[2] if is_reference(word)]
    if not named:
        return Opened(chosen)
    if len(named) > 1:
        raise UsageError("one benchmark from a registry at a time", where=" ".join(named))
    from gymctl.artefacts import reference
    from gymctl.artefacts.pulled import pull
    from gymctl.cli import interrupts

    wanted = reference.parse(named[0])

    async def main(_: Interrupts) -> Pulled:
        console.transient(f"  pulling {wanted}")
        return await pull(wanted, plain_http=plain_http)

    found = interrupts.run(main, console.insist)
    console.say(f"{found.reference}")
    given = {
        **chosen.given,
        "tokens": [word for word in tokens if word != named[0]],
        "benchmark": [found.manifest.benchmark, *(chosen.given.get("benchmark") or ())],
        "search_dir": [str(found.folder), *(chosen.given.get("search_dir") or ())],
    }
    bare = replace(found.reference, digest=None)
    return Opened(Chosen(given), found.lock, {"reference": str(bare), "digest": found.reference.digest or ""})
