from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml as pyyaml

from gymctl.compose import yaml
from gymctl.compose.names import HEAD, service_names
from gymctl.compose.render import CONTAINER_USER, Rendering, render, user
from gymctl.config.model import Config

GOLDEN = Path(__file__).parents[2] / "golden" / "compose.yaml"
SECRET = "sk-planted-$ecret-4711"


@pytest.fixture
def rendering(config: Config) -> Rendering:
    services = [HEAD, *service_names(config.servers).values()]
    return Rendering(
        images={name: f"gymctl/{name.replace('_', '-')}:0123456789abcdef0123" for name in config.servers},
        head_image="gymctl/base:0123456789abcdef0123",
        part_digests={service: f"{number:016x}" for number, service in enumerate(services)},
        folder="/home/you/project",
        user="1000:1000",
        cpus=2,
    )


def test_four_servers_render_to_the_golden_file(config: Config, rendering: Rendering) -> None:
    text = yaml.dump(render(config, rendering), path=".gymctl/weather-1a2b/compose.yaml")
    assert text == GOLDEN.read_text("utf-8")


def test_the_file_says_the_same_after_reading_it_back(config: Config, rendering: Rendering) -> None:
    document = pyyaml.safe_load(yaml.dump(render(config, rendering)))
    assert list(document["services"]) == [
        "head",
        "weather",
        "policy-model",
        "weather-agent",
        "weather-environment-server",
    ]
    assert document["services"]["weather"]["ports"] == [
        {"target": 8000, "published": "15011", "host_ip": "127.0.0.1"}
    ]


def test_every_service_says_its_platform(config: Config, rendering: Rendering) -> None:
    """Otherwise DOCKER_DEFAULT_PLATFORM of whoever runs the file by hand decides (B49)."""
    services = render(config, replace(rendering, platform="linux/arm64")).services
    assert {service.platform for service in services.values()} == {"linux/arm64"}


def test_files_of_the_host_are_mounted_beside_the_part(config: Config, rendering: Rendering) -> None:
    block = config.servers["policy_model"]
    mounting = replace(block, settings={**block.settings, "mounts": ["/data/x.gguf"]})
    project = render(replace(config, servers={**config.servers, "policy_model": mounting}), rendering)
    sources = [mount.source for mount in project.services["policy-model"].volumes]
    assert sources == ["./parts/policy-model.json", "/data/x.gguf"]
    assert [mount.source for mount in project.services["weather"].volumes] == ["./parts/weather.json"]


def test_a_foreign_server_may_write_and_only_where_it_asks_be_root(
    config: Config, rendering: Rendering
) -> None:
    weather = replace(config.servers["weather"], family="nemo_gym")
    as_root = replace(weather, settings={**weather.settings, "resources": {"user": "root"}})
    plain, root = (
        render(replace(config, servers={**config.servers, "weather": one}), rendering).services["weather"]
        for one in (weather, as_root)
    )
    assert (plain.user, plain.cap_add, plain.read_only) == ("1000:1000", None, False)
    assert (root.user, root.read_only) == ("0:0", False)
    assert root.cap_drop == ("ALL",)
    assert "DAC_OVERRIDE" in (root.cap_add or ()), "the part file is another user's, mode 0600"


def test_agents_read_the_folder_of_skills_where_the_host_has_it(
    config: Config, rendering: Rendering, tmp_path: Path
) -> None:
    """CONTRACT 8.6: rows name the folder by its place on the host, and agents read it there."""
    (tmp_path / "skills").mkdir()
    asked = replace(
        config, document={**config.document, "skills": {"path": "skills"}}, search_roots=(tmp_path,)
    )
    folder = str(tmp_path / "skills")
    found = {
        name: [(mount.source, mount.target, mount.read_only) for mount in service.volumes[1:]]
        for name, service in render(asked, rendering).services.items()
    }
    assert found.pop("weather-agent") == [(folder, folder, True)]
    assert not any(found.values())
    block = asked.servers["weather_agent"]
    own = replace(block, settings={**block.settings, "mounts": [folder]})
    twice = replace(asked, servers={**asked.servers, "weather_agent": own})
    assert len(render(twice, rendering).services["weather-agent"].volumes) == 2
    gone = replace(asked, search_roots=())
    assert len(render(gone, rendering).services["weather-agent"].volumes) == 1


def test_no_secret_stands_in_the_file(config: Config, rendering: Rendering) -> None:
    text = yaml.dump(render(config, rendering))
    assert SECRET not in text
    assert SECRET.replace("$", "$$") not in text


def test_dollar_signs_are_not_read_as_variables(config: Config, rendering: Rendering) -> None:
    text = yaml.dump(render(config, replace(rendering, folder="/home/$USER/${HOME}")))
    folder = pyyaml.safe_load(text)["services"]["head"]["labels"]["dev.gymctl.folder"]
    assert folder == "/home/$$USER/$${HOME}"


def test_every_container_is_closed(config: Config, rendering: Rendering) -> None:
    """Also: no name that is the machine's own (B36), no file written into the user's folders (B46), no image
    looked up in a registry (B52)."""
    for name, service in pyyaml.safe_load(yaml.dump(render(config, rendering)))["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert service["init"] is True
        assert service["user"] == "1000:1000"
        assert service["memswap_limit"] == service["mem_limit"]
        assert service["pids_limit"] > 0
        assert service["restart"] == "no"
        assert service["pull_policy"] == "never"
        assert all(port["host_ip"] == "127.0.0.1" for port in service["ports"])
        assert all(mount["read_only"] for mount in service["volumes"])
        assert "environment" not in service
        assert "container_name" not in service


def test_every_container_says_itself_what_it_runs(config: Config, rendering: Rendering) -> None:
    """B41: an image with an ENTRYPOINT of its own would take a bare command as its arguments."""
    for name, service in pyyaml.safe_load(yaml.dump(render(config, rendering)))["services"].items():
        assert service["entrypoint"][:2] == ["python", "-m"], name
        assert "command" not in service


def test_only_models_and_the_head_reach_the_host(config: Config, rendering: Rendering) -> None:
    services = render(config, rendering).services
    reaching = {name for name, service in services.items() if service.extra_hosts}
    assert reaching == {"head", "policy-model"}


def test_start_interval_is_left_out_for_engines_that_refuse_it(config: Config, rendering: Rendering) -> None:
    old = replace(rendering, has_start_interval=False)
    assert "start_interval" not in yaml.dump(render(config, old))
    assert "start_interval" in yaml.dump(render(config, rendering))


def test_servers_that_are_emulated_are_not_asked_every_two_seconds(
    config: Config, rendering: Rendering
) -> None:
    for service in render(config, replace(rendering, is_emulated=True)).services.values():
        assert service.healthcheck is not None and service.healthcheck.start_interval is None


def test_the_probe_is_valid_python_after_yaml_and_compose(config: Config, rendering: Rendering) -> None:
    service = pyyaml.safe_load(yaml.dump(render(config, rendering)))["services"]["weather"]
    code = service["healthcheck"]["test"][-1].replace("$$", "$")
    compile(code, "probe", "exec")
    assert r"\r\n" in code


def test_gpus_are_reserved_for_the_server_that_asks(config: Config, rendering: Rendering) -> None:
    block = config.servers["policy_model"]
    asking = replace(block, settings={**block.settings, "resources": {"gpus": "all"}})
    project = render(replace(config, servers={**config.servers, "policy_model": asking}), rendering)
    services = pyyaml.safe_load(yaml.dump(project))["services"]
    device = {"count": "all", "driver": "nvidia", "capabilities": ["gpu"]}
    assert services["policy-model"]["deploy"] == {"resources": {"reservations": {"devices": [device]}}}
    assert "deploy" not in services["weather"]


def test_root_never_runs_inside() -> None:
    assert user(0, 0) == CONTAINER_USER
    assert user(1000, 100) == "1000:100"
