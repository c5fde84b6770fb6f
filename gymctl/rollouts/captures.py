"""The collector's side of recorded model calls: files cleared before a rollout, evidence added after it.

    await captures.clear("3-0")                     a stale file would be taken for this attempt's
    await captures.attach(record, row, "3-0", ms)   ng_model_call_capture, ng_trajectory, ng_perf

Only where observability is on; a rollout whose evidence cannot be read keeps its result and tells the gap.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from gymctl.contract.captures import CaptureFiles
from gymctl.contract.rollout import MODEL_CALLS, PERF, TRAJECTORY, Row, task_name
from gymctl.errors import PrerequisiteError
from gymctl.rollouts import call_records, trajectory
from gymctl.rollouts.tokens import Tokens

logger = logging.getLogger(__name__)

PROJECTION_FAILED = "trajectory_projection_failed"


@dataclass(frozen=True, slots=True)
class Captures:
    """calls: the folder of recorded model calls; None when only tokens are recorded."""

    calls: Path | None
    tokens: Tokens | None = None

    async def clear(self, rollout: str) -> None:
        """Remove what an earlier run left under this id. An id that names no file leaves none."""
        folders = {self.calls, None if self.tokens is None else self.tokens.folder}
        for folder in folders - {None}:
            files = None if folder is None else CaptureFiles.of(folder, rollout)
            if files is not None:
                await asyncio.to_thread(_remove, files)

    def check(self, record: Row) -> None:
        """Raise RunError when too many rollouts have no usable tokens; call it when a record is written."""
        if self.tokens is not None:
            self.tokens.check(record)

    async def attach(self, record: Row, row: Row, rollout: str, seconds: float) -> int:
        """Add to the record what was seen of its rollout; about how many bytes that is. seconds: how long
        `/run` took."""
        return await asyncio.to_thread(self._attach, record, row, rollout, seconds * 1000)

    def _attach(self, record: Row, row: Row, rollout: str, milliseconds: float) -> int:
        size = 0 if self.calls is None else self._attach_calls(self.calls, record, row, rollout, milliseconds)
        if self.tokens is not None:
            self.tokens.attach(record, rollout)
        return size

    def _attach_calls(self, folder: Path, record: Row, row: Row, rollout: str, milliseconds: float) -> int:
        files = CaptureFiles.of(folder, rollout)
        if files is None:
            calls, gaps, size = [], [{"code": call_records.NO_RECORDS}], 0
        else:
            calls, gaps, size = call_records.read(files)
        capture = {
            "rollout_id": rollout,
            "metrics": call_records.metrics(calls),
            "calls": calls,
            "gaps": gaps,
        }
        record[MODEL_CALLS] = capture
        try:
            seen = trajectory.project(record, task_name(row), rollout)
            told = trajectory.perf(seen, milliseconds)
            record[TRAJECTORY] = seen.model_dump(mode="json")
        except Exception as error:
            logger.warning("rollout %s: its trajectory cannot be put together", rollout, exc_info=True)
            record.pop(TRAJECTORY, None)
            capture["gaps"] = [*gaps, {"code": PROJECTION_FAILED, "detail": type(error).__name__}]
            return size
        trajectory.without_payloads(capture)
        if told is not None:
            record[PERF] = told
        return size


def _remove(files: CaptureFiles) -> None:
    for path in files.all:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise PrerequisiteError(
                f"what an earlier run recorded cannot be removed: {error.strerror}",
                where=str(path),
                hint="name another folder with ++model_call_capture_dir=…",
            ) from error
