"""What a stack leaves in its folder when it ends, without an engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gymctl.contract.servers import ServerTable
from gymctl.errors import EngineError
from gymctl.paths import ProjectPaths
from gymctl.runtime import private, state
from gymctl.runtime.state import ProjectState
from gymctl.testing.stack import GymStack


class Stopping:
    """A project that the engine stops, or does not."""

    def __init__(self, paths: ProjectPaths, *, is_stuck: bool) -> None:
        self._paths, self._is_stuck = paths, is_stuck

    async def down(self) -> None:
        if self._is_stuck:
            raise EngineError("1 things of `a` cannot be removed")
        state.forget(self._paths)


@pytest.fixture
def paths(tmp_path: Path) -> ProjectPaths:
    made = ProjectPaths.of("a", tmp_path)
    private.make_folder(made.parts)
    private.write(made.part("tiny"), "{}")
    known = ProjectState(
        project="a", runtime="compose", head_url="", table=ServerTable(servers={}), services={}, inputs=""
    )
    state.save(made, known)
    return made


def stack(paths: ProjectPaths, monkeypatch: pytest.MonkeyPatch, *, is_stuck: bool) -> GymStack:
    made = GymStack(folder=paths.folder.parent.parent)
    monkeypatch.setattr(made, "_config", SimpleNamespace(project="a"))
    monkeypatch.setattr(made, "_running", Stopping(paths, is_stuck=is_stuck))
    return made


async def test_a_stack_that_has_ended_leaves_nothing(
    paths: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack(paths, monkeypatch, is_stuck=False).__aexit__(None, None, None)
    assert not paths.folder.exists()


async def test_what_cannot_be_stopped_keeps_what_it_needs(
    paths: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="cannot be removed"):
        await stack(paths, monkeypatch, is_stuck=True).__aexit__(None, None, None)
    assert paths.part("tiny").exists()
    assert state.load(paths) is not None
