"""Model calls that were recorded, as files: one set for each rollout id, in one folder (CONTRACT 15.1, 15.3).

3-0.capture.jsonl        one line per model call: request, response, when, how long, what went wrong
3-0.capture.incomplete   there: at least one call could not be written
3-0.tokens.jsonl         one line per model call: the token ids that went in and came out
3-0.tokens.state.json    how many lines are whole, and whether one is missing
3-0.tokens.lock          held while the two are written
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CAPTURE_SEGMENT = "training-token-capture"
"""In the path of a model call, after the rollout's id: record its tokens."""
CALL_ID_HEADER = "x-gymctl-model-call-id"
"""Of an answer whose call was recorded: the `model_call_id` of its line."""
TOKENS_SCHEMA = 1

_FILE_ID = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_ID = 200
_DOMAIN = b"nemo-gym-tokens"
_DIGEST_VERSION = 1


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """The files of one rollout."""

    folder: Path
    rollout: str

    @classmethod
    def of(cls, folder: Path, rollout: str) -> CaptureFiles | None:
        """None for an id that no file can be named after."""
        if _FILE_ID.fullmatch(rollout) is None or len(rollout) > _LONGEST_ID:
            return None
        return cls(folder, rollout)

    def _file(self, suffix: str) -> Path:
        return self.folder / f"{self.rollout}.{suffix}"

    @property
    def calls(self) -> Path:
        return self._file("capture.jsonl")

    @property
    def calls_incomplete(self) -> Path:
        return self._file("capture.incomplete")

    @property
    def tokens(self) -> Path:
        return self._file("tokens.jsonl")

    @property
    def tokens_state(self) -> Path:
        return self._file("tokens.state.json")

    @property
    def tokens_lock(self) -> Path:
        return self._file("tokens.lock")

    @property
    def all(self) -> tuple[Path, ...]:
        return self.calls, self.calls_incomplete, self.tokens, self.tokens_state, self.tokens_lock


def digest(token_ids: Sequence[int]) -> str:
    """Names an exact sequence of tokens."""
    if not token_ids:
        return hashlib.sha256(_DOMAIN).hexdigest()
    packed = struct.pack(f">BQ{len(token_ids)}Q", _DIGEST_VERSION, len(token_ids), *token_ids)
    return hashlib.sha256(_DOMAIN + packed).hexdigest()
