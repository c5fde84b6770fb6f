"""What a word for a packed benchmark, in a registry or a bundle, came to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from gymctl.cli.selection import Chosen
from gymctl.errors import UsageError

_ROLLOUT = re.compile(r"(\d+)-(\d+)")


def command(word: str, model: str, cassettes: Mapping[str, Path | None]) -> str:
    """What runs a packed benchmark called `word`, with its cassette if it brings one.

    model: the model server of its own, if it has one. cassettes: by place, and the file where there is one to
    look into.
    """
    first = next(iter(cassettes.items()), None)
    if first is not None:
        flags = f" {_replaying(*first)}"
    else:
        flags = "" if model else " --model-type NAME"
    return f"gymctl eval {shlex.quote(word)}{flags}"


def _replaying(place: str, cassette: Path | None) -> str:
    """The flags that play a cassette at `place` of it: of as many tasks and attempts as are in it."""
    rollouts = _rollouts(cassette) if cassette is not None else set[tuple[int, int]]()
    tasks, attempts = (len({rollout[side] for rollout in rollouts}) for side in (0, 1))
    is_block = rollouts == set(product(range(tasks), range(attempts)))
    return f"--model replay:{place}" + (f" --limit {tasks} -k {attempts}" if rollouts and is_block else "")


def _rollouts(file: Path) -> set[tuple[int, int]]:
    from gymctl.contract import cassette

    try:
        entries = [cassette.parsed(line) or {} for line in file.read_bytes().splitlines()]
    except OSError:
        return set()
    found = (_ROLLOUT.fullmatch(str(entry.get("rollout"))) for entry in entries)
    return {(int(one[1]), int(one[2])) for one in found if one is not None}


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
