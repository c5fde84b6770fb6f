"""What was found of one ingredient of a run, or one part of an image, when its digest was computed again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from gymctl.rollouts.differences import short

Status = Literal["ok", "differs", "gone", "not recorded"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `gymctl verify`."""

    name: str
    status: Status
    """gone: it is not on this machine, so nobody can tell."""
    detail: str = ""
    thing: str = ""
    """What it is a part of, where there are many: an image's name. `name` begins with it."""

    @classmethod
    def of(cls, name: str, expected: str, found: str, detail: str = "") -> Finding:
        """By digest."""
        if expected == found:
            return cls(name, "ok", detail)
        if short(expected) == short(found):  # not in the digits that are usually shown
            return cls(name, "differs", f"expected {expected}, found {found}")
        return cls(name, "differs", f"expected {short(expected)}, found {short(found)}")

    def fails(self, *, is_strict: bool) -> bool:
        return self.status == "differs" or (is_strict and self.status != "ok")

    def to_json(self) -> dict[str, str]:
        return asdict(self)
