"""What `gymctl build` says before it needs an engine."""

from __future__ import annotations

from pathlib import Path

from fakes.program import gymctl


def test_folders_of_nemo_gym_are_not_locked_and_that_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "resources_servers" / "theirs"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("import nemo_gym\n")
    (folder / "requirements.txt").write_text("-e nemo-gym[dev] @ ../../\n")

    done = gymctl("build", "resources_servers/theirs", "--lock-requirements", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == "warning: folders of NeMo Gym's own are not locked: theirs\n"
    assert not (folder / "requirements.lock").exists()
