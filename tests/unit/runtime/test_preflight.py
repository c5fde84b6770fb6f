from __future__ import annotations

from dataclasses import replace

import pytest

from gymctl.config.model import Config, RaySettings
from gymctl.errors import ConfigError
from gymctl.runtime import preflight


def joining(config: Config, address: str, *, uses_ray: bool = True) -> Config:
    block = replace(config.servers["weather"], uses_ray=uses_ray, runs_ray_tasks=uses_ray)
    settings = config.settings.model_copy(update={"ray": RaySettings(address=address)})
    return replace(config, servers={**config.servers, "weather": block}, settings=settings)


@pytest.mark.parametrize("address", ["10.1.0.7:6379", "auto"])
def test_an_address_for_nodes_is_refused_for_containers(config: Config, address: str) -> None:
    with pytest.raises(ConfigError, match="`weather` cannot join Ray") as raised:
        preflight.ray_address(joining(config, address))
    assert "ray://" in (raised.value.hint or "")


def test_an_address_for_clients_is_taken_and_any_where_nobody_uses_ray(config: Config) -> None:
    preflight.ray_address(joining(config, "ray://10.1.0.7:10001"))
    preflight.ray_address(joining(config, "10.1.0.7:6379", uses_ray=False))


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"user": "root"}, "`weather` is built on gymctl's SDK"),
        ({"memory": "lots"}, "`memory` must be a size"),
        ({"memory": "1g", "gpus": "few"}, "gpus"),
    ],
)
def test_resources_that_cannot_be_had_are_told_before_anything_is_built(
    config: Config, resources: dict[str, object], told: str
) -> None:
    weather = config.servers["weather"]
    asking = replace(weather, settings={**weather.settings, "resources": resources})

    preflight.complete(config)
    with pytest.raises(ConfigError, match=told):
        preflight.complete(replace(config, servers={**config.servers, "weather": asking}))
