"""Top-level keys with their defaults, and who gets which port (CONTRACT 1.13, 1.14)."""

from __future__ import annotations

import socket

import pytest

from gymctl.config.ports import allocate, is_free, with_free_head_port
from gymctl.errors import ConfigError, PrerequisiteError

SERVER = (
    "{name}: {{resources_servers: {{weather_tool: {{entrypoint: app.py, domain: math, port: {port}}}}}}}\n"
)


def test_defaults(stack) -> None:
    config = stack.load("model.yaml", "weather.yaml")
    settings = config.settings
    assert (config.head_host, config.head_port) == ("127.0.0.1", 11000)
    assert settings.server_spinup_timeout_seconds == 600
    assert settings.model_endpoint_readiness_timeout_seconds == 600
    assert (settings.pool.limit, settings.pool.limit_per_host) == (102400, 1024)
    assert config.document["results_dir"] == str(stack.folder / "results")
    assert config.document["cache_dir"] == str(stack.folder / "cache")
    assert {server.port for server in config.servers.values()} == {-1}


@pytest.mark.parametrize(
    ("value", "seconds"), [("null", 600), ("0", None), ("-1", None), ("'90'", 90), ("1.5", 1.5)]
)
def test_timeouts(bench, value, seconds) -> None:
    bench.document()
    bench.write("a.yaml", f"server_spinup_timeout_seconds: {value}\n")
    assert bench.load("one_server.yaml", "a.yaml").settings.server_spinup_timeout_seconds == seconds


@pytest.mark.parametrize(
    "text",
    [
        "server_spinup_timeout_seconds: soon",
        "server_spinup_timeout_seconds: true",
        "server_spinup_timeout_seconds: .nan",
        "model_endpoint_readiness_timeout_seconds: [1]",
        "allow_openai_version_skew: 'yes'",
        "verbose: 1",
        "global_aiohttp_connector_limit: -1",
        "global_aiohttp_connector_limit_per_host: 1.5",
        "global_aiohttp_tcp_keepalive_probes: 128",
        "global_aiohttp_intended_concurrency: 0",
        "port_range_low: 0",
        "port_range_low: 20001",
        "results_dir: ''",
        "cache_dir: 7",
        "token_id_capture: true",
        "token_id_capture: {enabled: 1}",
        "token_id_capture: {dir: relative}",
        "environment_routing_mode: agents",
        "disallowed_ports: [0]",
        "uvicorn_forwarded_allow_ips: 10.0.0.1",
        "head_server: 11000",
        "head_server: {port: http}",
        "default_host: 1",
    ],
)
def test_wrong_types_are_told_with_their_place(bench, text) -> None:
    bench.write("a.yaml", f"# a comment\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        bench.document("a.yaml")
    assert (caught.value.where or "").startswith("a.yaml:2:")
    assert "got `" in caught.value.what


def test_a_misspelt_key_of_token_capture_is_told_with_a_suggestion(bench) -> None:
    bench.write("a.yaml", "token_id_capture:\n  enabeld: true\n")
    with pytest.raises(ConfigError) as caught:
        bench.document("a.yaml")
    assert caught.value.what == "`token_id_capture` does not know `enabeld`"
    assert (caught.value.where or "").startswith("a.yaml:2")
    assert caught.value.hint == "did you mean `enabled`?"


def test_an_address_that_cannot_be_looked_up_is_no_bug(bench, monkeypatch) -> None:
    def fail(_: str) -> str:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", fail)
    bench.write("a.yaml", "use_absolute_ip: true\n")
    with pytest.raises(ConfigError, match="cannot be looked up: Name or service not known") as caught:
        bench.document("a.yaml")
    assert caught.value.where == "a.yaml:1:1"


def test_head_host_and_port_are_filled_independently(bench) -> None:
    bench.document()
    bench.write("a.yaml", "default_host: 10.1.0.7\nhead_server: {port: 12000}\n")
    config = bench.load("one_server.yaml", "a.yaml")
    assert (config.head_host, config.head_port) == ("10.1.0.7", 12000)
    assert config.document["head_server"] == {"port": 12000, "host": "10.1.0.7"}
    assert config.servers["weather"].host == "10.1.0.7"


def test_two_servers_with_one_port_are_both_named_with_their_places(bench) -> None:
    bench.write("a.yaml", SERVER.format(name="one", port=15011))
    bench.write("b.yaml", "\n" + SERVER.format(name="two", port="'15011'"))
    with pytest.raises(ConfigError) as caught:
        bench.load("a.yaml", "b.yaml")
    assert "port 15011 is asked for by `one` (a.yaml:1:76) and by `two` (b.yaml:2:76)" in caught.value.what


def test_a_server_may_not_take_the_port_of_the_head(bench) -> None:
    bench.write("a.yaml", SERVER.format(name="one", port=11000))
    with pytest.raises(ConfigError, match="asked for by the head server"):
        bench.load("a.yaml")


def test_every_server_gets_a_port_of_its_own_in_the_range(stack) -> None:
    config = allocate(
        stack.load(
            "model.yaml", "weather.yaml", overrides=("+port_range_low=10500", "+port_range_high=10900")
        )
    )
    ports = [server.port for server in config.servers.values()]
    assert len(set(ports)) == len(ports)
    assert all(10500 <= port <= 10900 for port in ports)
    assert config.document["disallowed_ports"] == [11000, *ports]
    for name, server in config.servers.items():
        assert server.settings["port"] == server.port
        assert config.document[name][server.kind][server.implementation]["port"] == server.port


def test_allocation_leaves_the_loaded_config_alone(stack) -> None:
    loaded = stack.load("model.yaml", "weather.yaml")
    allocate(loaded)
    assert loaded.servers["weather"].settings["port"] == -1


def test_explicit_and_preferred_ports_are_kept_while_they_are_free(stack) -> None:
    stack.write("port.yaml", SERVER.format(name="weather", port=15011))
    loaded = stack.load("model.yaml", "weather.yaml", "port.yaml")
    assert loaded.servers["weather"].is_port_explicit
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free.bind(("127.0.0.1", 0))
        wanted, busy = free.getsockname()[1], taken.getsockname()[1]
        free.close()
        config = allocate(loaded, preferred={"policy_model": wanted, "weather_agent": busy})
    assert config.servers["weather"].port == 15011
    assert config.servers["policy_model"].port == wanted
    assert config.servers["weather_agent"].port != busy


def test_a_range_without_a_free_port_is_an_error(stack) -> None:
    loaded = stack.load(
        "model.yaml", "weather.yaml", overrides=("+port_range_low=10500", "+port_range_high=10501")
    )
    with pytest.raises(PrerequisiteError, match="no free port between 10500 and 10501"):
        allocate(loaded, avoid=[10500, 10501])


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        assert not is_free("203.0.113.7", port)
    assert is_free("127.0.0.1", port)


def test_a_taken_default_head_port_is_left_to_its_holder(stack, monkeypatch) -> None:
    loaded = stack.load("model.yaml", "weather.yaml")
    monkeypatch.setattr("gymctl.config.ports.is_free", lambda host, port: port != 11000)
    config = with_free_head_port(loaded)
    assert 10001 <= config.head_port <= 20000
    assert config.head_port != 11000
    assert config.document["head_server"]["port"] == config.head_port


def test_the_head_port_of_a_project_that_is_up_is_kept(stack) -> None:
    loaded = stack.load("model.yaml", "weather.yaml")
    assert with_free_head_port(loaded, held=12345).head_port == 12345
    assert with_free_head_port(loaded, held=11000) is loaded


def test_a_head_port_that_the_user_chose_stays(stack) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        loaded = stack.load("model.yaml", "weather.yaml", overrides=(f"++head_server.port={port}",))
        assert with_free_head_port(loaded) is loaded


def test_a_number_that_fits_no_float_is_no_number_of_seconds(bench) -> None:
    bench.write("long.yaml", f"server_spinup_timeout_seconds: {'9' * 400}\n")
    with pytest.raises(ConfigError, match="server_spinup_timeout_seconds"):
        bench.document("long.yaml")


def test_defaults_stand_in_the_document_also_for_those_who_refer_to_them(bench) -> None:
    document = bench.document(
        bench.write("a.yaml", "x: {y: '${cache_dir}/z', low: '${port_range_low}'}\n").name
    )
    assert document["x"] == {"y": f"{bench.folder}/cache/z", "low": 10001}
    assert document["uv_cache_dir"] == f"{bench.folder}/cache/uv"
    relative = bench.document("a.yaml", overrides=("++cache_dir=../c",))
    assert relative["x"]["y"] == f"{bench.folder.parent}/c/z"
