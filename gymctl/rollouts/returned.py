"""What the models of a run called themselves in their answers: name and fingerprint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymctl.contract.rollout import Row

FINGERPRINT = "system_fingerprint"
MOST = 32
"""Names that are kept apart: one that is another each time must not fill the passport."""
OTHERS = "(others)"
_LONGEST = 200


@dataclass(slots=True)
class Returned:
    """Counted by record, failed attempts too: from the answer that it holds."""

    names: Counter[str] = field(default_factory=Counter[str])
    fingerprints: Counter[str] = field(default_factory=Counter[str])

    def see(self, record: Row) -> None:
        response = record.get("response")
        if isinstance(response, Mapping):
            _count(self.names, response.get("model"))
            _count(self.fingerprints, response.get(FINGERPRINT))

    def fields(self) -> dict[str, Any]:
        """Of a passport."""
        return {
            "models_returned": dict(sorted(self.names.items())),
            "fingerprints_returned": dict(sorted(self.fingerprints.items())),
        }


def _count(found: Counter[str], value: object) -> None:
    if isinstance(value, str) and value:
        name = value[:_LONGEST]
        found[name if name in found or len(found) < MOST else OTHERS] += 1
