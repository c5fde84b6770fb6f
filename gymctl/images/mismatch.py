"""What uv and pip say of a package that has another hash than its lock names: tampered, or locked anew.

uv 0.13:    cause: Hash mismatch for `six==1.17.0`
                   Expected:
                     sha256:<64 digits>          one line for each that would do
                   Computed:
                     sha256:<64 digits>
pip 25:     ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. …
                six==1.17.0 from https://… (from -r requirements.txt (line 1)):
                    Expected sha256 <64 digits>
                    Expected     or <64 digits>
                         Got        <64 digits>
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gymctl.errors import IntegrityError

SHOWN = 12
"""Hexadecimal digits."""
_UV = re.compile(r"Hash mismatch for `([^`]+)`")
_PIP = "DO NOT MATCH THE HASHES"
_PIP_PACKAGE = re.compile(r"\s+(\S+)(?: from .*)?:$")
_DIGEST = re.compile(r"([0-9a-f]{32,128})$")


@dataclass(frozen=True, slots=True)
class Mismatch:
    package: str
    """`six==1.17.0`."""
    expected: tuple[str, ...]
    """In hex; each of these files would have been right."""
    found: str

    def __str__(self) -> str:
        others = len(self.expected) - 1
        expected = self.expected[0][:SHOWN] + (f" or {others} more" if others else "")
        return f"`{self.package}`: expected sha256 {expected}, found {self.found[:SHOWN]}"


def find(lines: Sequence[str]) -> list[Mismatch]:
    """All of them, in the output of uv or pip; lines that are cut off or of another form are none."""
    found: list[Mismatch] = []
    package: str | None = None
    expected: list[str] = []
    is_pip = is_computed = False
    for line in lines:
        is_pip = is_pip or _PIP in line
        named = _UV.search(line) or (_PIP_PACKAGE.match(line) if is_pip else None)
        digest = _DIGEST.search(line.rstrip())
        if named is not None and named[1] not in ("Expected", "Computed"):
            package, expected, is_computed = named[1], [], False
        elif line.strip() == "Computed:":
            is_computed = True
        elif package is not None and digest is not None:
            if not is_computed and not line.lstrip().startswith("Got "):
                expected.append(digest[1])
                continue
            if expected:
                found.append(Mismatch(package, tuple(expected), digest[1]))
            package = None
    return found


def refusal(
    found: Sequence[Mismatch], *, whose: str, where: str | None, hint: str, details: Sequence[str]
) -> IntegrityError:
    """found: at least one. whose: `the image of resources_servers/weather`."""
    several = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return IntegrityError(
        f"a package of {whose} has another hash than it should: {found[0]}{several}",
        where=where,
        hint=hint,
        details=details,
    )


def hint_for(lock: str, command: str | None) -> str:
    """What to do. lock: how the file is called. command: what writes it anew, where the user may."""
    anew = "" if command is None else f"; if the new file is right, `{command}` locks it"
    return f"the index (`build.index_url`) or a proxy gives another file, or {lock} was changed{anew}"
