"""Task fields are checked by the `TaskData` of a server (CONTRACT 8.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.errors import ConfigError
from gymctl.rollouts.task_schema import TaskSchema, task_fields

SCHEMA = """\
print("noise on stdout")
from pydantic import BaseModel

class TaskData(BaseModel):
    answer: int
    hint: str | None = None
"""


def test_rows_are_checked_in_a_process_of_the_authors_code(tmp_path: Path) -> None:
    (tmp_path / "task_data.py").write_text(SCHEMA)
    schema = TaskSchema(tmp_path)
    try:
        assert set(schema.schema["properties"]) == {"answer", "hint"}
        assert schema.problem({"answer": 3, "responses_create_params": {}}) is None
        assert schema.problem({"verifier_metadata": {"answer": 3}, "agent_ref": {"name": "x"}}) is None
        wrong = schema.problem({"answer": "three", "hint": 4})
        assert wrong is not None
        assert wrong.startswith("answer: Input should be a valid integer")
        assert "hint: Input should be a valid string" in wrong
        assert schema.problem({"answer": 4}) is None
    finally:
        schema.close()


@pytest.mark.parametrize(
    "text", ["import not_installed_here\n", "TaskDat = 3\n", "def (\n", "raise SystemExit\n"]
)
def test_a_file_that_cannot_be_imported_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "task_data.py").write_text(text)
    with pytest.raises(ConfigError, match="cannot be imported here") as caught:
        TaskSchema(tmp_path)
    assert caught.value.where == str(tmp_path / "task_data.py")


def test_only_the_fields_of_the_task_are_checked() -> None:
    reserved = {"agent_ref": {}, "task_source": "a", "skills_ref": {}, "_ng_task_index": 1}
    assert task_fields({"n": 1, "verifier_metadata": {"m": 2}, **reserved}) == {"n": 1, "m": 2}
    materialized = {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"n": 1}}
    assert task_fields(materialized) == {"n": 1}
