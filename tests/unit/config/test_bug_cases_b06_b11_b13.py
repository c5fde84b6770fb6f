"""Cases of other tools' users: lists given twice, references that stop following, names that collide."""

from __future__ import annotations

import pytest

from gymctl.compose.names import service_names
from gymctl.config.telling.explain import explain
from gymctl.errors import ConfigPathNotFoundError
from gymctl.images.plan import BaseImage, plan

FOLDERS = {
    "math.v1": "math.v1",
    "math_v1": "math_v1",
    "Math v1": "Math_v1",
    "math/v1": "math-v1",
    "mäth": "math",
}
"""By server id."""
DOCKERFILE = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n"


def test_b06_every_named_file_is_loaded_however_the_lists_are_given(stack) -> None:
    for name in ("a", "b", "c", "d"):
        stack.write(f"{name}.yaml", f"{name}: 1\nlast: {name}\n")
    config = stack.load(
        *("model.yaml", "weather.yaml", "a.yaml", "b.yaml"),
        overrides=("++config_paths=[c.yaml]", "+config_paths=[d.yaml]"),
    )
    assert [config.document[name] for name in ("a", "b", "c", "d", "last")] == [1, 1, 1, 1, "d"]
    assert [file.name for file in config.files] == [
        *("model.yaml", "weather.yaml", "a.yaml", "b.yaml", "c.yaml", "d.yaml", "env.yaml")
    ]


def test_b06_files_in_one_word_are_refused_with_the_form_to_use(stack) -> None:
    stack.write("a.yaml", "a: 1\n")
    with pytest.raises(ConfigPathNotFoundError) as caught:
        stack.load("model.yaml,a.yaml")
    assert caught.value.hint == "give one file per --config"


def test_b11_a_reference_that_a_later_file_writes_into_stops_following_and_says_so(bench) -> None:
    bench.write("one.yaml", "base: {t: 0.2, n: 3}\njudge: ${base}\nother: ${base}\n")
    bench.write("two.yaml", "judge: {t: 0.9}\n")
    bench.write("three.yaml", "base: {n: 7}\n")
    document = bench.document("one.yaml", "two.yaml", "three.yaml")
    assert (document["judge"], document["other"]) == ({"t": 0.9, "n": 3}, {"t": 0.2, "n": 7})
    config = bench.load("one_server.yaml", "one.yaml", "two.yaml", "three.yaml")
    expanded = explain(config, "judge.n")[0]
    assert expanded.value == 3
    assert str(expanded.writers[-1].origin) == "one.yaml:2:1"
    assert expanded.is_expanded
    assert not explain(config, "other.n")[0].is_expanded


def test_b13_names_that_collide_further_down_get_services_and_images_of_their_own(bench) -> None:
    blocks = []
    for server, folder in FOLDERS.items():
        bench.write(f"resources_servers/{folder}/app.py", "")
        bench.write(f"resources_servers/{folder}/requirements.txt", "")
        bench.write(f"resources_servers/{folder}/Dockerfile", f"{DOCKERFILE}LABEL server={folder}\n")
        implementation = f"{{{folder}: {{entrypoint: app.py, domain: math}}}}"
        blocks.append(f'"{server}": {{resources_servers: {implementation}}}\n')
    bench.write("a.yaml", "".join(blocks))
    config = bench.load("a.yaml", overrides=("++math_v1.resources_servers.math_v1.domain=games",))
    assert list(config.servers) == list(FOLDERS)
    services = service_names(config.servers)
    assert len(set(services.values())) == len(FOLDERS)
    for service in services.values():
        assert service.isascii() and service.islower() and service.replace("-", "").isalnum()
    plans = plan(config, BaseImage("python:3.13-slim", "sha256:0"))
    assert [item.servers for item in plans] == [(server,) for server in FOLDERS]
    assert len({item.tag for item in plans}) == len(FOLDERS)


def test_b13_an_override_reaches_a_server_whose_id_holds_dots(bench) -> None:
    block = "{resources_servers: {weather_tool: {entrypoint: app.py, domain: math}}}"
    bench.write("a.yaml", f'"math.v1": {block}\nmath_v1: {block}\n')
    config = bench.load("a.yaml", overrides=("++math.v1.resources_servers.weather_tool.domain=games",))
    assert [block.settings["domain"] for block in config.servers.values()] == ["games", "math"]
