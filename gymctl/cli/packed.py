"""What a word for a packed benchmark, in a registry or a bundle, came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gymctl.cli.selection import Chosen
from gymctl.errors import UsageError


@dataclass(frozen=True, slots=True)
class Opened:
    """What is run: the same as was chosen, or what a reference to a registry came to."""

    chosen: Chosen
    lock: Path | None = None
    """The lock that the benchmark brings: only its images are run."""
    benchmark: Mapping[str, str] | None = None
    """`reference` and `digest`, for the passport."""

    @classmethod
    def of(cls, chosen: Chosen, word: str, folder: Path, benchmark: str, named: tuple[str, str]) -> Opened:
        """What `word` came to: a benchmark of this name in `folder`; its reference and digest."""
        given = {
            **chosen.given,
            "tokens": [one for one in chosen.given.get("tokens") or () if one != word],
            "benchmark": [benchmark, *(chosen.given.get("benchmark") or ())],
            "search_dir": [str(folder), *(chosen.given.get("search_dir") or ())],
            "packed": str(folder),
        }
        facts = {"reference": named[0], "digest": named[1]}
        return cls(Chosen(given), folder / "images.lock.json", facts)

    def locked_by(self, other: Path | None) -> Path | None:
        """The lock to run with; `other`: what --locked asks for. UsageError: both."""
        if self.lock is not None and other is not None:
            hint = "it brings its own lock; leave --locked and --lock out"
            raise UsageError("a benchmark that was packed runs locked anyway", where="--locked", hint=hint)
        return self.lock or other
