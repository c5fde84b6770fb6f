from __future__ import annotations

import pytest

from gymctl.compose.limits import Limits, declares, gpus, limits
from gymctl.errors import ConfigError


def test_a_block_without_resources_has_the_defaults() -> None:
    assert limits("weather", {}, host_cpus=2) == Limits()
    assert Limits().cpus is None


def test_what_a_block_asks_for_is_used_and_cpus_are_clamped_to_the_host() -> None:
    asked = {"resources": {"memory": "512m", "cpus": 8, "pids": 64}}
    assert limits("weather", asked, host_cpus=2) == Limits(memory=f"{512 * 1024**2}b", cpus=2.0, pids=64)


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ({"memory": "1"}, "memory"),
        ({"memory": "lots"}, "memory"),
        ({"memory": True}, "memory"),
        ({"cpus": 0}, "cpus"),
        ({"cpus": "nan"}, "cpus"),
        ({"pids": -1}, "pids"),
        ({"memory": "1g", "disk": 1}, "disk"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": True}, "gpus"),
        ({"gpus": "some"}, "gpus"),
    ],
)
def test_unusable_limits_name_server_and_key(asked: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        limits("weather", {"resources": asked}, host_cpus=2)
    assert key in str(caught.value)
    assert "weather" in str(caught.value)


@pytest.mark.parametrize("count", [1, 4, "all"])
def test_a_block_may_ask_for_gpus(count: object) -> None:
    settings = {"resources": {"gpus": count}}
    assert limits("weather", settings, host_cpus=2) == Limits(gpus=count)  # type: ignore[arg-type]
    assert gpus(settings) == count
    assert gpus({"resources": {"memory": "1g"}}) is None
    assert gpus({"resources": {"wiki": "x"}}) is None


def test_resources_of_an_implementation_are_left_alone() -> None:
    assert not declares({"resources": ["a", "b"]})
    assert not declares({"resources": {"wiki": "https://example.com"}})
