"""What --locked goes together with."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from gymctl.cli.main import application
from gymctl.cli.selection import locked_by
from gymctl.errors import IntegrityError, PrerequisiteError, UsageError
from gymctl.images.lock import Lock, write
from gymctl.runtime import up


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["up", "weather", "--lock", "x.json"], "--lock names the lock of --locked"),
        (["eval", "weather", "--lock", "x.json"], "--lock names the lock of --locked"),
        (["eval", "--no-serve", "--locked"], "--no-serve starts nothing"),
        (["up", "weather", "--locked", "--runtime", "process", "--dry-run"], "local processes run none"),
    ],
)
def test_flags_that_do_not_go_together(arguments: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        typer.main.get_command(application()).main(arguments, standalone_mode=False)


def test_the_lock_of_the_folder_is_meant_unless_another_is_named() -> None:
    assert locked_by(True, None) == Path("images.lock.json")
    assert locked_by(True, Path("x.json")) == Path("x.json")
    assert locked_by(False, None) is None


async def test_without_a_lock_or_an_engine_nothing_runs_as_a_process_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(IntegrityError, match="there is no lock file"):
        await up.locked("auto", tmp_path / "images.lock.json")
    write(tmp_path / "images.lock.json", Lock())
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(PrerequisiteError):
        await up.locked("auto", tmp_path / "images.lock.json")
