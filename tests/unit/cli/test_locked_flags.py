"""What --locked goes together with."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from gymctl.cli.main import application
from gymctl.cli.selection import locked_by
from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.engine import Engine
from gymctl.errors import PrerequisiteError, UsageError
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
    with pytest.raises(UsageError, match="there is no lock file"):
        await up.locked("auto", tmp_path / "images.lock.json")
    write(tmp_path / "images.lock.json", Lock())
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(PrerequisiteError):
        await up.locked("auto", tmp_path / "images.lock.json")


@pytest.mark.parametrize("is_locked", [False, True])
async def test_a_start_asks_the_engine_for_the_platform_of_the_build_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    """B49."""
    asked: list[str | None] = []

    def connect(platform: str | None = None) -> None:
        asked.append(platform)
        raise PrerequisiteError("no engine in this test")

    monkeypatch.setattr(Engine, "connect", connect)
    write(tmp_path / "images.lock.json", Lock())
    (tmp_path / "env.yaml").write_text("build: {platform: linux/arm64}\n")
    config = load(Selection(benchmark=("weather",), model_type="scripted_model"), cwd=tmp_path)
    lock_file = tmp_path / "images.lock.json" if is_locked else None
    with pytest.raises(PrerequisiteError, match="in this test"):
        await up.bring_up(config, choice="compose", reporter=Silent(), base=tmp_path, locked_by=lock_file)
    assert asked == ["linux/arm64"]


class Silent:
    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...
