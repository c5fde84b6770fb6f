"""What a run checks before its first side effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gymctl.contract.servers import Address, ServerEntry, ServerTable
from gymctl.errors import UsageError
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.run import Run, RunRequest

TABLE = ServerTable(
    servers={
        "desk": ServerEntry(
            name="desk",
            address=Address(kind="responses_api_agents", implementation="x", host="h", port=1),
        ),
        "env": ServerEntry(
            name="env",
            address=Address(kind="environment_servers", implementation="x", host="h", port=1),
            references={"agent_server": "desk"},
        ),
    }
)
ROW = {"responses_create_params": {"input": "hi"}, "agent_ref": {"name": "desk"}}


@pytest.mark.parametrize("name", ["x.jsonl", "x_materialized_inputs.jsonl", "x_failures.jsonl"])
def test_a_run_never_replaces_its_own_input(tmp_path: Path, name: str) -> None:
    rows = tmp_path / name
    rows.write_text(json.dumps(ROW) + "\n")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="replace its own input"):
        Run.prepare(RunRequest([Source(tmp_path / "link" / name)], tmp_path / "x.jsonl"), TABLE)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]
    assert rows.read_text() == json.dumps(ROW) + "\n"


def test_an_input_beside_the_output_is_fine(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROW) + "\n")
    run = Run.prepare(RunRequest([Source(rows)], tmp_path / "x.jsonl"), TABLE)
    run.close()
    assert run.tally.planned == 1
