"""Ray's containers: who gets them, what runs in them, and what stays closed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gymctl.compose import ray
from gymctl.compose.model import Dependency
from gymctl.compose.names import HEAD, service_names
from gymctl.compose.render import Rendering, render
from gymctl.config.model import Config, RaySettings

HEALTHY = Dependency(condition="service_healthy")


def rendering(config: Config) -> Rendering:
    services = [HEAD, *service_names(config.servers).values()]
    return Rendering(
        images={name: f"gymctl/{name}:1" for name in config.servers},
        head_image="gymctl/base:1",
        part_digests=dict.fromkeys(services, "0"),
        folder="/home/you/project",
        user="1000:1000",
        cpus=4,
    )


def using(config: Config, *servers: str, runs: bool = True, **keys: Any) -> Config:
    changed = {
        name: replace(block, uses_ray=True, runs_ray_tasks=runs) if name in servers else block
        for name, block in config.servers.items()
    }
    settings = config.settings.model_copy(update={"ray": RaySettings(**keys)})
    return replace(config, servers=changed, settings=settings)


def test_a_project_whose_servers_do_not_use_ray_has_none_of_it(config: Config) -> None:
    project = render(using(config, workers=3, dashboard_port=8265), rendering(config))

    assert not any(name.startswith("ray") for name in project.services)
    assert all(service.depends_on is None for service in project.services.values())


def test_a_cluster_that_is_there_already_is_joined_and_none_is_started(config: Config) -> None:
    there = using(config, "weather", address="ray://127.0.0.1:10001")
    services = render(there, rendering(there)).services
    block = there.servers["weather"]

    assert not any(name.startswith("ray") for name in services)
    assert services["weather"].extra_hosts == ("host.docker.internal:host-gateway",)
    assert ray.address(there, block, "network") == "ray://host.docker.internal:10001"
    assert ray.address(there, block, "host") == "ray://127.0.0.1:10001"
    assert ray.address(there, there.servers["policy_model"], "network") is None


def test_head_and_workers_run_the_image_of_the_server_whose_tasks_they_run(config: Config) -> None:
    asked = using(config, "weather", workers=2)
    services = render(asked, rendering(asked)).services
    mine = {name: service for name, service in services.items() if name.startswith("ray")}

    assert list(mine) == ["ray-head", "ray-worker-1", "ray-worker-2"]
    assert {service.image for service in mine.values()} == {"gymctl/weather:1"}
    needed = {"ray-head": ("weather",), "ray-worker-1": (), "ray-worker-2": ()}
    assert ray.clusters(asked)[0].needed_by == needed
    assert ray.address(asked, asked.servers["weather"], "network") == "ray://ray-head:10001"
    waiting = {name for name, service in services.items() if service.depends_on == {"ray-head": HEALTHY}}
    assert waiting == {"weather", "ray-worker-1", "ray-worker-2"}


def test_rays_containers_are_fenced_in_and_publish_nothing(config: Config) -> None:
    """B55: /dev/shm holds the object store and 30 % more."""
    asked = using(config, "weather")
    for name in ("ray-head", "ray-worker-1"):
        service = render(asked, rendering(asked)).services[name]

        assert (service.user, service.read_only, service.init) == ("1000:1000", True, True)
        assert (service.cap_drop, service.security_opt) == (("ALL",), ("no-new-privileges:true",))
        assert (service.ports, service.volumes) == ((), ())
        assert service.pids_limit >= 512
        store = next(int(word.partition("=")[2]) for word in service.entrypoint if "store" in word)
        shared, memory = (int(str(text).removesuffix("b")) for text in (service.shm_size, service.mem_limit))
        assert store * 1.3 - 1 <= shared < memory


def test_the_dashboard_is_off_or_on_loopback(config: Config) -> None:
    off, on = (using(config, "weather", dashboard_port=port) for port in (None, 8300))

    assert "--include-dashboard=false" in render(off, rendering(off)).services["ray-head"].entrypoint
    services = render(on, rendering(on)).services
    port = services["ray-head"].ports[0]
    assert (port.target, port.published, port.host_ip) == (8265, "8300", "127.0.0.1")
    assert services["ray-worker-1"].ports == ()


def test_servers_of_other_images_have_a_cluster_of_their_own(config: Config) -> None:
    asked = using(config, "weather", "weather_agent", dashboard_port=8300)
    services = render(asked, rendering(asked)).services

    assert services["ray-head"].image == "gymctl/weather:1"
    assert services["ray-2-head"].image == "gymctl/weather_agent:1"
    assert ray.address(asked, asked.servers["weather_agent"], "network") == "ray://ray-2-head:10001"
    assert [port.published for port in services["ray-2-head"].ports] == ["8301"]


def test_servers_that_only_join_share_the_cluster_of_one_that_runs_tasks(config: Config) -> None:
    joins = using(config, "weather", runs=False)
    assert [one.server for one in ray.clusters(joins)] == ["weather"]

    agent = replace(joins.servers["weather_agent"], uses_ray=True, runs_ray_tasks=True)
    mixed = replace(joins, servers={**joins.servers, "weather_agent": agent})
    assert [(one.server, one.servers) for one in ray.clusters(mixed)] == [
        ("weather_agent", ("weather_agent", "weather"))
    ]


@pytest.mark.parametrize(
    ("resources", "memory", "cpus"),
    [
        ({}, 2 * 1024**3, 2),
        ({"memory": "8g", "cpus": 3}, 8 * 1024**3, 3),
        ({"memory": "256m"}, 2 * 1024**3, 2),
    ],
)
def test_tasks_have_the_limits_of_their_server(
    config: Config, resources: dict[str, Any], memory: int, cpus: int
) -> None:
    block = config.servers["weather"]
    settings = {**block.settings, **({"resources": resources} if resources else {})}
    limited = replace(config, servers={**config.servers, "weather": replace(block, settings=settings)})
    asked = using(limited, "weather")
    service = render(asked, rendering(asked)).services["ray-worker-1"]

    assert service.mem_limit == f"{memory}b"
    assert f"--num-cpus={cpus}" in service.entrypoint


def test_no_server_can_take_the_name_of_a_ray_container() -> None:
    names = service_names(["ray_head", "ray-worker-1", "ray_2_head", "ray", "ray_heading"])

    assert not {"ray-head", "ray-worker-1", "ray-2-head"} & set(names.values())
    assert (names["ray"], names["ray_heading"]) == ("ray", "ray-heading")
