"""What a run is made with: the files that a server's block names count by what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymctl.cli.identity import identity
from gymctl.config.checks.evaluation import EvaluationSettings, Written
from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.contract.servers import ServerTable

MODEL = "policy_model.responses_api_models.scripted_model"


def made_with(folder: Path, *overrides: str) -> dict[str, Any]:
    chosen = Selection(
        resources_server=("weather",),
        model_type="scripted_model",
        overrides=tuple(f"++{MODEL}.{text}" for text in overrides),
    )
    config = load(chosen, cwd=folder, environ={})
    table = ServerTable.from_document(config.document)
    nothing_asked = Written(EvaluationSettings.model_validate({}), {})
    return dict(identity(config, table, nothing_asked, (), "", {}).config)


def test_another_script_is_another_run(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    name = f"{MODEL}.script_path (content)"
    assert name not in made_with(tmp_path, f"script_path={script}"), "there is no such file"
    script.write_text("- turns: [yes]\n")
    first = made_with(tmp_path, f"script_path={script}")
    assert made_with(tmp_path, f"script_path={script}") == first
    script.write_text("- turns: [no]\n")
    second = made_with(tmp_path, f"script_path={script}")
    assert {key for key in first if first[key] != second[key]} == {name}


def test_what_is_written_during_the_run_does_not_count(tmp_path: Path) -> None:
    cassette = tmp_path / "x.cassette"
    cassette.write_text("{}\n")
    mount = f"mounts=[{{path: {cassette}, writable: true}}]"
    assert not [key for key in made_with(tmp_path, f"script_path={cassette}", mount) if "(content)" in key]
