"""Which run a RUN argument means: a path, a name or its beginning, `@last`, `@-2`.

`.gymctl/runs.jsonl` in the folder where evaluations are started lists their outputs, the latest last.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from gymctl.config.names import close, did_you_mean
from gymctl.counts import counted
from gymctl.errors import UsageError
from gymctl.paths import NOT_ROLLOUTS

_NTH = re.compile(r"@(?:last|-([1-9][0-9]*))")
_SHOWN = 5


def register(output: Path, base: Path | None = None) -> None:
    """Remember a run as the latest one. Never fails the run: a folder that takes nothing has no list."""
    listing = _listing(base)
    entry = {"output": str(output.resolve()), "at": round(time.time(), 3)}
    try:
        listing.parent.mkdir(mode=0o700, exist_ok=True)
        with listing.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
    except OSError:
        pass


def resolve(text: str, base: Path | None = None) -> Path:
    """The rollouts file that `text` means. Raises UsageError that lists what there is."""
    path = Path(text)
    if path.is_file():
        return path
    known = outputs(base)
    if (nth := _NTH.fullmatch(text)) is not None:
        number = int(nth[1] or 1)
        if number > len(known):
            count = counted(len(known), "run of this folder is", "runs of this folder are")
            raise _unknown(text, f"{count} known", known)
        return known[-number]
    if path.name != text:  # a place: never the run of that name elsewhere
        place = str(((base or Path.cwd()) / path).resolve())
        found = [output for output in known if str(output) in (place, f"{place}{output.suffix}")]
    else:
        named = [output for output in known if text in (output.stem, output.name)]
        found = named or [output for output in known if output.name.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise _unknown(text, "several runs are called so", found)
    what = "that is a folder" if path.is_dir() else "there is no such file"
    raise _unknown(text, f"{what}, and no run is called so", known, did_you_mean(_near(path, known, base)))


def outputs(base: Path | None = None) -> list[Path]:
    """The outputs that still exist, each once, the latest last."""
    try:
        lines = _listing(base).read_bytes().split(b"\n")
    except OSError:
        return []
    found: dict[Path, None] = {}
    for line in lines:
        try:
            output = Path(json.loads(line)["output"])
        except (ValueError, KeyError, TypeError):
            continue
        found.pop(output, None)
        found[output] = None
    return [output for output in found if output.is_file()]


def _listing(base: Path | None) -> Path:
    return (base or Path.cwd()) / ".gymctl" / "runs.jsonl"


def _near(path: Path, known: Sequence[Path], base: Path | None) -> list[str]:
    """Almost this name: files in the folder that was named, and runs that are known, as they may be named."""
    found = {output.stem: output.stem for output in known}
    for file in ((base or Path()) / path.parent).glob("*.jsonl"):
        if not file.stem.endswith(NOT_ROLLOUTS):
            found[file.stem] = str(path.with_name(file.name))
    return [found[name] for name in close(path.name.removesuffix(".jsonl"), found)]


def _unknown(text: str, why: str, candidates: Sequence[Path], hint: str | None = None) -> UsageError:
    shown = [str(output) for output in reversed(candidates[-_SHOWN:])]
    return UsageError(
        f"which run is `{text}`? {why}",
        hint=hint or "name the rollouts file, such as results/run.jsonl",
        details=[f"the latest: {', '.join(shown)}"] if shown else (),
    )
