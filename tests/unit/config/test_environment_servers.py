"""Environment servers: the relays that agents get, and the blocks of the built-in ones."""

from __future__ import annotations

import pytest

from gymctl.errors import AgentWithoutEnvironmentServerError, ConfigError

AGENT = "{id}: {{responses_api_agents: {{{type}: {{entrypoint: app.py}}}}}}\n"


@pytest.mark.parametrize(
    ("agent", "implementation", "relay"),
    [
        ("desk_simple_agent", "simple_agent", "desk_environment_server"),
        ("support_agent", "simple_agent", "support_environment_server"),
        ("xyz", "simple_agent", "xyz_environment_server"),
        ("simple_agent", "simple_agent", "simple_agent_environment_server"),
        ("desk__simple_agent", "simple_agent", "desk_environment_server"),
    ],
)
def test_relay_ids(bench, agent, implementation, relay) -> None:
    bench.write("a.yaml", AGENT.format(id=agent, type=implementation))
    config = bench.load("a.yaml")
    assert list(config.servers) == [agent, relay]
    assert config.document[relay]["environment_servers"]["legacy_agent"]["agent_server"] == {
        "type": "responses_api_agents",
        "name": agent,
    }


def test_relay_ids_avoid_what_is_taken(bench) -> None:
    bench.write(
        "a.yaml",
        AGENT.format(id="desk_agent", type="simple_agent")
        + "desk_environment_server: 1\ndesk_agent_environment_server: {}\n",
    )
    assert list(bench.load("a.yaml").servers)[1] == "desk_agent_environment_server_environment_server"


def test_one_warning_lists_all_relays_ready_to_paste(bench) -> None:
    bench.write(
        "a.yaml", AGENT.format(id="a_agent", type="simple_agent") + AGENT.format(id="b", type="simple_agent")
    )
    (warning,) = bench.load("a.yaml").warnings
    bench.write("pasted.yaml", warning.partition("\n")[2])
    config = bench.load("a.yaml", "pasted.yaml")
    assert config.warnings == ()
    assert list(config.servers) == ["a_agent", "b", "a_environment_server", "b_environment_server"]


@pytest.mark.parametrize(
    "field", ["agent_server: {name: a}", "user_agent: {type: responses_api_agents, name: a}"]
)
def test_an_agent_that_is_fronted_gets_no_relay(bench, field) -> None:
    (bench.folder / "environment_servers/own").mkdir()
    (bench.folder / "environment_servers/own/app.py").touch()
    (bench.folder / "environment_servers/own/pyproject.toml").touch()
    bench.write(
        "a.yaml",
        AGENT.format(id="a", type="simple_agent")
        + f"env: {{environment_servers: {{own: {{entrypoint: app.py, {field}}}}}}}\n",
    )
    assert list(bench.load("a.yaml").servers) == ["a", "env"]


def test_missing_environment_servers_can_be_an_error(bench) -> None:
    bench.write(
        "a.yaml",
        AGENT.format(id="a", type="simple_agent") + "error_on_agent_without_environment_server: true\n",
    )
    with pytest.raises(AgentWithoutEnvironmentServerError) as caught:
        bench.load("a.yaml")
    assert "a_environment_server:" in caught.value.details


ENVIRONMENT = """\
env:
  environment_servers:
    {kind}: {{entrypoint: app.py, agent_server: {{name: weather_agent}}{more}}}
"""


@pytest.mark.parametrize(
    ("kind", "more", "problem"),
    [
        ("legacy_agent", ", colour: 1", "does not know `colour`"),
        (
            "legacy_agent",
            ", resources_server: {type: resources_servers, name: weather}",
            "`resources_server`",
        ),
        ("single_agent_turn", ", cleanup_timeout_seconds: 180", "`resources_server` is required"),
        (
            "single_agent_turn",
            ", resources_server: {type: resources_servers, name: weather}",
            "`cleanup_timeout_seconds` is required",
        ),
        ("legacy_agent", ", max_concurrent_episodes: 3", "`queue_timeout_seconds` is required"),
        ("legacy_agent", ", max_concurrent_episodes: 0", "above 0, got `0`"),
        ("legacy_agent", ", cleanup_timeout_seconds: soon", "above 0, got `soon`"),
    ],
)
def test_built_in_environment_servers_reject_what_they_do_not_know(stack, kind, more, problem) -> None:
    stack.write("env_server.yaml", ENVIRONMENT.format(kind=kind, more=more))
    with pytest.raises(ConfigError) as caught:
        stack.load("model.yaml", "weather.yaml", "env_server.yaml")
    assert problem in caught.value.what
    assert (caught.value.where or "").startswith("env_server.yaml:3:")


def test_limits_of_a_relay_are_said_to_have_no_effect(stack) -> None:
    stack.write(
        "env_server.yaml", ENVIRONMENT.format(kind="legacy_agent", more=", cleanup_timeout_seconds: 9")
    )
    config = stack.load("model.yaml", "weather.yaml", "env_server.yaml")
    assert "`env.cleanup_timeout_seconds` has no effect" in config.warnings[0]
