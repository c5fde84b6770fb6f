"""Recorded token ids at the collector: put into the response, or the rollout is masked (CONTRACT 15.3)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gymctl.contract.captures import CaptureFiles
from gymctl.contract.rollout import ENVIRONMENT_SERVER, FAILURE_CLASS, Row
from gymctl.errors import RunError
from gymctl.rollouts import token_rebuild
from gymctl.rollouts.token_rebuild import Unusable

TOKEN_CAPTURE = "_ng_token_capture"


@dataclass(slots=True)
class Tokens:
    """folder: of the recorded tokens. servers: environment servers whose agents take part."""

    folder: Path
    servers: Collection[str]
    rebuilds: bool = True
    allow_unresolved: bool = False
    max_mask_fraction: float | None = None
    min_samples: int = 50
    seen: int = 0
    masked: int = 0

    def attach(self, record: Row, rollout: str) -> None:
        """Put the tokens into `response.output`, or mask the record. A failed rollout has nothing to train
        on, and an output that has tokens already is left as it is."""
        if record.get(FAILURE_CLASS) is not None or record.get(ENVIRONMENT_SERVER) not in self.servers:
            return
        if token_rebuild.has_tokens(record):
            record[TOKEN_CAPTURE] = {"metrics": {"source": "response"}, "error": None}
            return
        try:
            files = CaptureFiles.of(self.folder, rollout)
            if files is None:
                raise Unusable("no file can be named after the rollout's id")
            built = token_rebuild.rebuild(
                record, token_rebuild.read(files), allow_unresolved=self.allow_unresolved
            )
        except Unusable as error:
            _mask(record, str(error))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            _mask(record, f"the record cannot be understood: {type(error).__name__}")
        else:
            record[TOKEN_CAPTURE] = {"metrics": built.metrics, "error": None}
            if self.rebuilds:
                record["response"]["output"] = built.output

    def check(self, record: Row) -> None:
        """Count the record; RunError when so many are masked that the run is not worth going on."""
        told = record.get(TOKEN_CAPTURE)
        if not isinstance(told, dict):
            return
        self.seen += 1
        self.masked += told.get("error") is not None
        limit = self.max_mask_fraction
        if limit is None or self.seen < self.min_samples or self.masked <= limit * self.seen:
            return
        raise RunError(
            f"{self.masked} of {self.seen} rollouts have no usable token ids",
            hint=f"`token_id_capture.max_mask_fraction` is {limit:g}; `_ng_token_capture.error` says why",
        )


def _mask(record: Row, reason: str) -> None:
    record[TOKEN_CAPTURE] = {"metrics": {}, "error": reason}
    record["mask_sample"] = True
