"""`task_data.py` of a server: its `TaskData` says which task fields a row must have (CONTRACT 8.6).

The file is the server author's code, so a process of its own reads it. That a package of the server is not
installed here keeps rows from being checked; it does not make them wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import Row, is_materialized
from gymctl.errors import ConfigError
from gymctl.rollouts.encoding import dumps

FILE = "task_data.py"
_RESERVED = frozenset({"responses_create_params", "agent_ref", "task_source", "skills_ref"})
_WORKER = """
import json, os, sys
out, sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8"), sys.stderr
sys.path[:0] = sys.argv[1:]
try:
    from task_data import TaskData
    answer = {"schema": TaskData.model_json_schema()}
except BaseException as error:
    answer = {"error": f"{type(error).__name__}: {error}"[:300]}
print(json.dumps(answer), file=out, flush=True)
for line in sys.stdin.buffer if "schema" in answer else ():
    try:
        TaskData.model_validate(json.loads(line))
        problem = None
    except Exception as error:
        found = error.errors() if callable(getattr(error, "errors", None)) else []
        told = [".".join(map(str, one["loc"])) + ": " + one["msg"] for one in found]
        problem = "; ".join(told[:3]) or f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(problem), file=out, flush=True)
"""


class TaskSchema:
    """The `TaskData` of one server folder, in a process that `close` ends."""

    def __init__(self, folder: Path, roots: Sequence[Path] = ()) -> None:
        """Raises ConfigError when the file cannot be imported here; `roots` are importable, too."""
        self.path = folder / FILE
        environ = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(folder), *map(str, roots)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
        )
        try:
            answer = self._answer()
        except ConfigError:
            self.close()
            raise
        if not isinstance(answer, Mapping) or "schema" not in answer:
            self.close()
            detail = answer.get("error") if isinstance(answer, Mapping) else None
            raise ConfigError(
                "`TaskData` cannot be imported here", where=str(self.path), details=[str(detail)]
            )
        self.schema: dict[str, Any] = answer["schema"]

    def problem(self, row: Row) -> str | None:
        """What is wrong with the task fields of a row, or None."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(dumps(task_fields(row)) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        return None if answer is None else str(answer)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _ended(self) -> ConfigError:
        return ConfigError("the process that checks task data has ended", where=str(self.path))


def task_fields(row: Row) -> Row:
    """What `TaskData` is given: the fields of the task, those of `verifier_metadata` among them."""
    task = row["task_input"] if is_materialized(row) else row
    if not isinstance(task, Mapping):
        return {}
    fields = {
        key: value for key, value in task.items() if key not in _RESERVED and not key.startswith("_ng_")
    }
    metadata = fields.pop("verifier_metadata", None)
    return {**fields, **metadata} if isinstance(metadata, Mapping) else fields
