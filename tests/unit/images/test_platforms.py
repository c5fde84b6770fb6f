"""For which platforms an engine builds, and what is said of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gymctl.engine import Endpoint, Engine, EngineFacts
from gymctl.errors import PrerequisiteError, UsageError
from gymctl.images import platforms
from gymctl.programs import Finished

INSPECTED = "Name:      default\nPlatforms: linux/amd64*, linux/amd64/v2, linux/arm64\nLabels:\n"
FACTS = EngineFacts("26.1.5", (1, 45), "amd64")


def engine(platform: str, inspected: str = INSPECTED) -> Any:
    async def run(*args: str) -> Finished:
        return Finished("docker", 0, inspected, ())

    return SimpleNamespace(facts=FACTS, platform=platform, builder="default", run=run)


async def test_the_engine_s_own_platform_is_not_asked_for() -> None:
    assert await platforms.check(engine("linux/amd64", "")) is None


async def test_an_emulated_platform_is_named() -> None:
    assert "linux/arm64 is emulated" in str(await platforms.check(engine("linux/arm64")))


async def test_a_platform_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(PrerequisiteError, match=r"\(linux/amd64\) cannot build for linux/arm64"):
        await platforms.check(engine("linux/arm64", "Platforms: linux/amd64, linux/386\n"))


def test_only_platforms_that_the_locks_are_for_are_taken() -> None:
    assert platforms.chosen("linux/arm64") == "linux/arm64"
    assert platforms.chosen(None) is None
    with pytest.raises(UsageError, match=r"linux/s390x"):
        platforms.chosen("linux/s390x")


def test_every_command_takes_the_platform_that_docker_would(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint("default", "unix:///nonexistent")
    monkeypatch.delenv("DOCKER_DEFAULT_PLATFORM", raising=False)
    assert Engine(endpoint, FACTS).platform == "linux/amd64"
    monkeypatch.setenv("DOCKER_DEFAULT_PLATFORM", "linux/arm64")
    assert Engine(endpoint, FACTS).platform == "linux/arm64"
    assert Engine(endpoint, FACTS, "linux/amd64").platform == "linux/amd64"
