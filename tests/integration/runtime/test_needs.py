"""A start that cannot work ends before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.cli.main import main
from gymctl.paths import cache_dir

CONFIG = """
far:
  resources_servers:
    far:
      entrypoint: app.py
      domain: other
      sandbox_provider: sandbox
"""


@pytest.mark.parametrize("command", [["up", "--detach"], ["up", "--dry-run"], ["eval", "-o", "x.jsonl"]])
def test_a_start_without_what_a_server_needs_builds_nothing(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "resources_servers" / "far"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("")
    (folder / "requirements.txt").write_text("")
    (tmp_path / "far.yaml").write_text(CONFIG)
    model = ["--model-type", "scripted_model"]
    with pytest.raises(SystemExit) as ended:
        main([*command, *model, "--runtime", "process", "weather", "far.yaml", "++head_server.port=11731"])
    told = capsys.readouterr().err
    assert ended.value.code == 3, told
    assert "`far` needs a sandbox provider `sandbox`, which no config defines\n  --> far.yaml:7:7" in told
    assert not (cache_dir() / "envs").exists()
