"""An engine that has two equal copies of a step compares what stands on it with either, by size and time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.own_engine import needs_own_engine, own_engine

from gymctl.config.model import BuildSettings, Config
from gymctl.engine import Engine
from gymctl.images.build import ensure, plan_all
from gymctl.images.reproducible import check

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), needs_own_engine]
STEPS = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0
RUN mkdir /srv/kept && echo aaaa >/srv/kept/word
"""


async def test_a_step_on_a_copy_of_another_is_whole_and_has_the_same_id(
    tmp_path: Path,
    engine: Engine,
    own_base: str,
    config_of: Callable[..., Config],
    reporter: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "words"
    place.mkdir()
    (place / "app.py").write_text("print('hello')\n")
    (place / "Dockerfile").write_text(STEPS)
    config = config_of(place)
    base = (await plan_all(config, engine, reporter))[0]
    await ensure(config_of(), engine, reporter)
    with own_engine([own_base, base.tag]) as other:
        monkeypatch.setenv("DOCKER_HOST", other.environ["DOCKER_HOST"])
        there = Engine.connect()
        await ensure(config, there, reporter)
        await check((await plan_all(config, there, reporter))[1:], there, reporter, BuildSettings())

        other.restart()  # from now on the copies are different ones to it
        (place / "Dockerfile").write_text(f"{STEPS}RUN echo bbbb >/srv/kept/word\n")
        await ensure(config, there, reporter)
        plan = (await plan_all(config, there, reporter))[1]
        await check([plan], there, reporter, BuildSettings())
        # What is saved, as what is pushed, is what the engine found changed.
        assert b"bbbb\n" in other.docker("save", plan.tag).stdout
