"""How images are built side by side, and what is told when some do not build."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gymctl.config.model import BuildSettings
from gymctl.errors import EngineError, IntegrityError
from gymctl.images.build import PARALLEL_BUILDS, Made, _Builder, _combined
from gymctl.images.plan import ImagePlan, plan_server
from gymctl.images.secrets import BuildSecrets
from gymctl.programs import Finished


class BusyEngine:
    """Builds end together, as many as may run at once."""

    builder, platform = "default", "linux/amd64"

    def __init__(self) -> None:
        self.running = self.most = 0
        self.round = asyncio.Barrier(PARALLEL_BUILDS)

    async def run(self, *command: str, **_: object) -> Finished:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.round.wait()
        await asyncio.sleep(0.05)  # whoever else may start does
        self.running -= 1
        return Finished("docker", 0, "", ())


class Silent:
    def progress(self, text: str) -> None: ...


def plans(root: Path, count: int) -> list[ImagePlan]:
    made: list[ImagePlan] = []
    for number in range(count):
        folder = root / f"server-{number}"
        folder.mkdir()
        (folder / "app.py").write_text(f"app = {number}")
        made.append(plan_server(folder, "resources_servers", folder.name, "gymctl/base:1", (folder.name,)))
    return made


async def test_no_more_images_than_a_few_are_built_at_once(tmp_path: Path) -> None:
    """B53: an engine that is asked for everything at once fails at random."""
    engine: Any = BusyEngine()
    done: list[Made] = []
    reporter: Any = Silent()
    builder = _Builder(
        engine, BuildSecrets.of({}, BuildSettings()), tmp_path, reporter, done.append, is_fresh=False
    )
    await builder.build_all(plans(tmp_path, PARALLEL_BUILDS * 3))
    assert engine.most == PARALLEL_BUILDS
    assert len(done) == PARALLEL_BUILDS * 3


def test_several_failures_become_one_error_that_tells_each_with_its_place() -> None:
    first = EngineError("`a` does not build", where="server `x`", details=["no package"], hint="correct it")
    second = EngineError("files of `b` changed", hint="run it again")
    error = _combined([first, second])
    assert error.what == "2 images do not build"
    assert error.details == (
        "`a` does not build --> server `x`",
        "no package",
        "",
        "files of `b` changed",
        "",
    )
    assert error.hint == "correct it; run it again"
    assert _combined([first]) is first


def test_of_several_failures_what_was_tampered_with_decides_the_exit_code() -> None:
    error = _combined([EngineError("`a` does not build"), IntegrityError("`b` is not what was locked")])
    assert error.exit_code == 9
