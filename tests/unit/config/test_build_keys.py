"""The `build` block: checked with places and near names, read into settings, its logins told to nobody."""

from __future__ import annotations

import pytest

from gymctl.config.tree.masking import mask
from gymctl.errors import ConfigError
from gymctl.runtime import nemo_gym_part, parts

ONE = "weather: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n"
LOGIN = "hunter2-secret"
WHOLE = f"""\
build:
  ca_bundle: /etc/company.pem
  index_url: https://me:{LOGIN}@index.example.com/simple
  extra_index_urls: [https://more.example.com/simple]
  proxy:
    http: http://proxy.example.com:3128
    https: http://me:{LOGIN}@proxy.example.com:3128
    no_proxy: [localhost, .example.com]
  base_image: registry.example.com/team/python:3.13
  registry_mirror: mirror.example.com/hub/
  platform: linux/amd64
"""


def test_every_key_arrives(bench) -> None:
    bench.write("a.yaml", WHOLE + ONE)
    found = bench.load("a.yaml").settings.build
    assert found.ca_bundle == "/etc/company.pem"
    assert found.ca_bundle_place == "a.yaml:2:3"
    assert found.index_url == f"https://me:{LOGIN}@index.example.com/simple"
    assert found.extra_index_urls == ("https://more.example.com/simple",)
    assert found.http_proxy == "http://proxy.example.com:3128"
    assert found.https_proxy == f"http://me:{LOGIN}@proxy.example.com:3128"
    assert found.no_proxy == "localhost,.example.com"
    assert found.base_image == "registry.example.com/team/python:3.13"
    assert found.registry_mirror == "mirror.example.com/hub"
    assert found.platform == "linux/amd64"


def test_env_yaml_and_the_command_line_say_it_too(bench) -> None:
    bench.write("env.yaml", "build: {registry_mirror: one.example.com, platform: linux/arm64}\n")
    bench.write("a.yaml", ONE)
    found = bench.load("a.yaml", overrides=("++build.registry_mirror=two.example.com",)).settings.build
    assert (found.registry_mirror, found.platform) == ("two.example.com", "linux/arm64")


def test_its_logins_are_secrets_and_no_server_is_told_the_block(bench) -> None:
    bench.write("a.yaml", WHOLE + ONE)
    config = bench.load("a.yaml")
    assert LOGIN in config.secrets
    assert LOGIN not in str(mask(config.document, config.secrets))
    assert "build" not in parts.document_for(config, parts.host_view(config))
    assert "example.com" not in nemo_gym_part.script_text(config.document, "config['build']", config.secrets)


@pytest.mark.parametrize(
    ("block", "told", "hint"),
    [
        ("build: {index_ur: https://x}", "`build` does not know `index_ur`", "did you mean `index_url`"),
        ("build: {proxy: {htps: http://x}}", "`build.proxy` does not know `htps`", "did you mean `https`"),
        ("build: {index_url: x.example.com}", "`build.index_url` must be a URL of http or https, got", None),
        ("build: {extra_index_urls: https://x}", "`build.extra_index_urls` must be a URL of http", None),
        ("build: {proxy: http://x}", "`build.proxy` must be a mapping", None),
        ("build: {registry_mirror: 'https://x'}", "`build.registry_mirror` must be HOST", None),
        ("build: {base_image: --pull}", "`build.base_image` must be the name of an image", None),
        ("build: {ca_bundle: 3}", "`build.ca_bundle` must be text", None),
        ("build: true", "`build` must be a mapping", None),
    ],
)
def test_a_wrong_key_or_value_is_told_with_its_place(bench, block, told, hint) -> None:
    bench.write("a.yaml", f"{block}\n{ONE}")
    error = _refused(bench)
    assert told in error.what
    assert str(error.where).startswith("a.yaml:1:")
    assert hint is None or hint in str(error.hint)


def test_a_login_without_a_scheme_is_refused_and_not_shown(bench) -> None:
    bench.write("a.yaml", f"build: {{proxy: {{https: 'me:{LOGIN}@proxy:3128'}}}}\n{ONE}")
    error = _refused(bench)
    assert "must be a URL" in error.what
    assert LOGIN not in f"{error.what} {error.hint} {error.details}"
    assert getattr(error.where, "line", None) is None, "or its line would be shown"


def _refused(bench):
    with pytest.raises(ConfigError) as caught:
        bench.load("a.yaml")
    return caught.value
