"""The global keys of listening and calling: checked, and told to every server (CONTRACT 1.14, 2.6, 3.5)."""

from __future__ import annotations

import pytest

from gymctl.compose.names import HEAD
from gymctl.contract.part import HeadPart, HttpSettings, Pool, ServerPart
from gymctl.errors import ConfigError
from gymctl.runtime import parts

TWO = """\
weather: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent, num_workers: 4}}}
other: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}
"""
WIRING = parts.Wiring(view="host", secret=b"k" * 32, head_network_port=20001)


def test_every_key_arrives_in_every_part(bench) -> None:
    bench.write("two.yaml", TWO)
    bench.write(
        "keys.yaml",
        """\
global_aiohttp_connector_limit: 4000
global_aiohttp_connector_limit_per_host: 400
global_aiohttp_intended_concurrency: 300
global_aiohttp_intended_concurrency_per_host: 200
global_aiohttp_client_request_debug: true
global_aiohttp_tcp_keepalive_idle_seconds: 61
global_aiohttp_tcp_keepalive_interval_seconds: 11
global_aiohttp_tcp_keepalive_probes: 4
uvicorn_timeout_worker_healthcheck: 31
uvicorn_logging_show_200_ok: true
uvicorn_proxy_headers: true
uvicorn_forwarded_allow_ips: [10.0.0.7, 10.1.0.0/16]
""",
    )
    pool = Pool(
        limit=4000,
        limit_per_host=400,
        intended=300,
        intended_per_host=200,
        tells_every_failure=True,
        keepalive_idle_seconds=61,
        keepalive_interval_seconds=11,
        keepalive_probes=4,
    )
    http = HttpSettings(
        show_access_log=True, trusted_proxies=("10.0.0.7", "10.1.0.0/16"), worker_silence_seconds=31
    )
    built = parts.build(bench.load("two.yaml", "keys.yaml"), WIRING)
    assert {type(part) for part in built.values()} == {HeadPart, ServerPart}
    assert {(part.pool, part.http) for part in built.values()} == {(pool, http)}


def test_servers_are_told_when_they_are_observed(bench) -> None:
    bench.write("two.yaml", TWO)
    bench.write("keys.yaml", "observability_enabled: true\nmodel_call_capture_dir: /tmp/calls\n")
    for files, told in ((("two.yaml",), {False}), (("two.yaml", "keys.yaml"), {True})):
        built = parts.build(bench.load(*files), WIRING).values()
        assert {part.is_observed for part in built if isinstance(part, ServerPart)} == told


def test_b68_a_limit_that_leaves_a_worker_nothing_is_refused_before_the_start(bench) -> None:
    bench.write("two.yaml", TWO)
    bench.write("keys.yaml", "# small\nglobal_aiohttp_connector_limit_per_host: 3\n")
    with pytest.raises(ConfigError) as caught:
        bench.load("two.yaml", "keys.yaml")
    assert caught.value.what == (
        "`global_aiohttp_connector_limit_per_host` of `weather`: "
        "3 connections cannot be divided over 4 workers"
    )
    assert (caught.value.where or "").startswith("keys.yaml:2:")


def test_b68_unlimited_and_exact_budgets_pass(bench) -> None:
    bench.write("two.yaml", TWO)
    for limit in (0, 4, 8):
        bench.write("keys.yaml", f"global_aiohttp_connector_limit: {limit}\n")
        assert bench.load("two.yaml", "keys.yaml").settings.pool.limit == limit


@pytest.mark.parametrize("listed", ["['*']", "[nowhere]", "[0.0.0.0/0]", "['::/0']", "['::ffff:0:0/96']"])
def test_3_5_proxies_that_are_everybody_are_refused(bench, listed) -> None:
    bench.write("two.yaml", TWO)
    bench.write("keys.yaml", f"uvicorn_proxy_headers: true\nuvicorn_forwarded_allow_ips: {listed}\n")
    with pytest.raises(ConfigError) as caught:
        bench.load("two.yaml", "keys.yaml")
    assert caught.value.what.startswith("`uvicorn_forwarded_allow_ips` ")
    assert (caught.value.where or "").startswith("keys.yaml:2:")


def test_3_5_proxies_must_be_named_once_their_headers_are_believed(bench) -> None:
    bench.write("two.yaml", TWO)
    for listed in ("", "uvicorn_forwarded_allow_ips: []\n"):
        bench.write("keys.yaml", f"uvicorn_proxy_headers: true\n{listed}")
        with pytest.raises(ConfigError, match="names no proxy"):
            bench.load("two.yaml", "keys.yaml")
    bench.write("keys.yaml", "uvicorn_forwarded_allow_ips: ['*']\n")
    assert bench.load("two.yaml", "keys.yaml").settings.http.trusted_proxies is None


def head_of(config) -> HeadPart:
    part = parts.build(config, WIRING)[HEAD]
    assert isinstance(part, HeadPart)
    return part


def test_2_1_the_head_shows_keys_only_when_it_is_told_to(bench) -> None:
    bench.write("two.yaml", TWO + "judge_api_key: sk-planted-0001\n")
    part = head_of(bench.load("two.yaml"))
    assert "sk-planted-0001" not in part.host_view + part.network_view
    bench.write("keys.yaml", "head_server: {masked: false}\n")
    config = bench.load("two.yaml", "keys.yaml")
    part = head_of(config)
    assert "judge_api_key: sk-planted-0001" in part.host_view
    assert "judge_api_key: sk-planted-0001" in part.network_view
    assert "whoever reaches the head reads all keys in clear" in "".join(config.warnings)


def test_2_1_masked_is_true_or_false(bench) -> None:
    bench.write("two.yaml", TWO)
    bench.write("keys.yaml", "head_server: {masked: wrong}\n")
    with pytest.raises(ConfigError, match=r"`head_server.masked` must be true or false, got `wrong`"):
        bench.load("two.yaml", "keys.yaml")
