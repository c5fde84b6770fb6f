"""`--agent-type`: a standalone agent takes the place of those that a configuration brings (CONTRACT 1.16)."""

from __future__ import annotations

from typing import Any

import pytest

from gymctl.config.model import Config
from gymctl.config.telling.explain import explain
from gymctl.errors import (
    AgentCompositionError,
    ConfigMissingValuesError,
    UnsupportedAgentOverrideError,
    UsageError,
)

HERMES_FILE = "responses_api_agents/hermes_agent/configs/hermes_agent.yaml"
HERMES = """\
hermes_agent:
  responses_api_agents:
    hermes_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: ???
      model_server: {type: responses_api_models, name: other_model}
      temperature: 1.0
      sandbox: {image: a, limits: {}}
"""
TRIVIA = """\
trivia_rs: {resources_servers: {weather_tool: {entrypoint: app.py, domain: knowledge}}}
trivia_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: trivia_rs}
      model_server: {type: responses_api_models, name: policy_model}
      max_steps: 3
      datasets: [{name: trivia, type: example, jsonl_fpath: trivia.jsonl}]
trivia_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: trivia_simple_agent}
"""
FUTURE = "++trivia_hermes_agent.responses_api_agents.hermes_agent"


@pytest.fixture
def trivia(stack):
    """model.yaml, trivia.yaml and a standalone hermes_agent that `--agent-type` finds."""
    stack.write("responses_api_agents/hermes_agent/app.py", "")
    stack.write("responses_api_agents/hermes_agent/requirements.txt", "")
    stack.write(HERMES_FILE, HERMES)
    stack.write("trivia.yaml", TRIVIA)
    stack.write("other.yaml", "other_model: ${copy:policy_model}\n")
    return stack


def swapped(bench, *files: str, **named: Any) -> Config:
    return bench.load("model.yaml", "trivia.yaml", *files, agent_type="hermes_agent", **named)


def block_of(config: Config, name: str = "trivia_hermes_agent") -> dict[str, Any]:
    return config.document[name]["responses_api_agents"]["hermes_agent"]


def test_the_standalone_agent_is_bound_to_what_the_old_one_was_bound_to(trivia) -> None:
    config = swapped(trivia)
    assert list(config.servers) == [
        "policy_model",
        "trivia_rs",
        "trivia_hermes_agent",
        "trivia_environment_server",
    ]
    assert block_of(config) == {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "trivia_rs"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "temperature": 1.0,
        "sandbox": {"image": "a", "limits": {}},
        "datasets": [{"name": "trivia", "type": "example", "jsonl_fpath": "trivia.jsonl"}],
        "host": "127.0.0.1",
        "port": -1,
    }
    assert [dataset.declared_by for dataset in config.datasets] == ["trivia_hermes_agent"]


def test_environment_servers_keep_their_id_and_follow(trivia) -> None:
    config = swapped(trivia)
    [call] = config.servers["trivia_environment_server"].calls
    assert call.name == "trivia_hermes_agent"


def test_rows_that_name_the_old_agent_are_mapped_and_user_entries_win(trivia) -> None:
    assert swapped(trivia).document["agent_map"] == {"trivia_simple_agent": "trivia_hermes_agent"}
    trivia.write("map.yaml", "agent_map: {trivia_simple_agent: elsewhere, more: other}\n")
    config = swapped(trivia, "map.yaml")
    assert config.document["agent_map"] == {"trivia_simple_agent": "elsewhere", "more": "other"}


def test_a_standalone_agent_in_a_file_is_enough(trivia) -> None:
    config = trivia.load("model.yaml", HERMES_FILE, "trivia.yaml")
    assert "trivia_hermes_agent" in config.servers


def test_every_agent_with_a_resources_server_is_replaced_and_no_other(trivia) -> None:
    trivia.write(
        "more.yaml",
        TRIVIA.replace("trivia", "quiz")
        + "alone: {responses_api_agents: {simple_agent: {entrypoint: app.py}}}\n"
        + "support_agent: {responses_api_agents: {simple_agent: {entrypoint: app.py,"
        " resources_server: {type: resources_servers, name: quiz_rs}}}}\n",
    )
    config = swapped(trivia, "more.yaml", "other.yaml")
    found = [name for name, server in config.servers.items() if server.kind == "responses_api_agents"]
    assert found == ["trivia_hermes_agent", "quiz_hermes_agent", "alone", "support_hermes_agent"]
    # What the old agent did not have comes from the standalone one.
    assert "datasets" not in block_of(config, "support_hermes_agent")


def test_a_binding_that_is_left_open_stays_open(trivia) -> None:
    trivia.write(
        "open.yaml",
        "trivia_simple_agent:\n  responses_api_agents:\n    simple_agent:\n      model_server: ???\n"
        "      resources_server: {type: resources_servers, name: trivia_rs}\n",
    )
    trivia.write("rs.yaml", TRIVIA.splitlines()[0] + "\n")
    with pytest.raises(ConfigMissingValuesError) as caught:
        trivia.load("model.yaml", "rs.yaml", "open.yaml", agent_type="hermes_agent")
    assert "`trivia_hermes_agent.responses_api_agents.hermes_agent.model_server`" in str(caught.value)
    assert caught.value.where == "open.yaml:4:7 via --agent-type hermes_agent"


def test_what_the_standalone_agent_leaves_open_is_reported_under_its_new_name(trivia) -> None:
    trivia.write(HERMES_FILE, HERMES + "      image: ???\n")
    with pytest.raises(ConfigMissingValuesError) as caught:
        swapped(trivia)
    assert caught.value.where == f"{HERMES_FILE}:11:7 via --agent-type hermes_agent"
    assert f"{FUTURE}.image=<value>" in (caught.value.hint or "")
    config = swapped(trivia, overrides=(f"{FUTURE}.image=b",))
    assert block_of(config)["image"] == "b"


def test_an_agent_may_be_replaced_by_its_own_kind(trivia) -> None:
    """The id stays, and the command line means the new one, which has only the standalone one's fields."""
    file = "responses_api_agents/simple_agent/configs/simple_agent.yaml"
    trivia.write(file, HERMES.replace("hermes", "simple"))
    token = "++trivia_simple_agent.responses_api_agents.simple_agent.temperature=0"
    config = trivia.load(
        "model.yaml",
        "trivia.yaml",
        agent_type="simple_agent",
        overrides=(token, "++agent_name=trivia_simple_agent"),
    )
    block = config.document["trivia_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert (block["temperature"], "max_steps" in block) == (0, False)


# ---- mistakes


def test_several_standalone_agents_are_named_with_their_places(trivia) -> None:
    trivia.write("second.yaml", HERMES.replace("hermes_agent:\n  resp", "second:\n  resp"))
    with pytest.raises(AgentCompositionError) as caught:
        swapped(trivia, "second.yaml")
    assert "`second`, `hermes_agent`" in caught.value.what
    assert "second.yaml:7" in str(caught.value) and f"{HERMES_FILE}:7" in str(caught.value)


def test_a_standalone_agent_needs_somebody_to_replace(trivia) -> None:
    with pytest.raises(AgentCompositionError, match="no other agent") as caught:
        trivia.load("model.yaml", agent_type="hermes_agent")
    assert caught.value.where == f"{HERMES_FILE}:7:9"


def test_a_bound_agent_replaces_nobody(trivia) -> None:
    trivia.write(HERMES_FILE, HERMES.replace("???", "trivia_rs").replace("other_model", "policy_model"))
    config = swapped(trivia)
    assert {"trivia_simple_agent", "hermes_agent"} <= set(config.servers)
    assert "agent_map" not in config.document


def test_an_override_that_binds_the_standalone_agent_ends_the_swap(trivia) -> None:
    """Also when another override names the agent that the swap would have made."""
    trivia.write(HERMES_FILE, HERMES.replace("other_model", "policy_model"))
    bound = "++hermes_agent.responses_api_agents.hermes_agent.resources_server.name=trivia_rs"
    config = swapped(trivia, overrides=(bound,))
    assert {"trivia_simple_agent", "hermes_agent"} <= set(config.servers)
    config = swapped(trivia, overrides=(bound, f"{FUTURE}.note=1"))
    assert config.document["trivia_hermes_agent"] == {"responses_api_agents": {"hermes_agent": {"note": 1}}}


def test_an_id_that_is_taken_is_a_collision(trivia) -> None:
    trivia.write("taken.yaml", "trivia_hermes_agent: {note: 1}\n")
    with pytest.raises(AgentCompositionError, match="two blocks would get the name") as caught:
        swapped(trivia, "taken.yaml")
    assert "`trivia_simple_agent` would become `trivia_hermes_agent`" in str(caught.value)
    assert "taken.yaml:1" in str(caught.value)


def test_two_agents_that_would_get_one_id_are_a_collision(trivia) -> None:
    trivia.write("twin.yaml", TRIVIA.replace("trivia_simple_agent", "trivia_agent"))
    with pytest.raises(AgentCompositionError, match="two blocks would get the name"):
        swapped(trivia, "twin.yaml")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("agent_name: trivia_simple_agent\n", "agent_name"),
        ("agent_map: {_default: trivia_simple_agent}\n", "agent_map._default"),
        ("fan_out: {trivia_rs: [x, trivia_simple_agent]}\n", "fan_out.trivia_rs[1]"),
    ],
)
def test_routes_to_an_agent_that_is_replaced_are_errors(trivia, text, key) -> None:
    trivia.write("route.yaml", text)
    with pytest.raises(AgentCompositionError) as caught:
        swapped(trivia, "route.yaml")
    assert (
        caught.value.what
        == f"`{key}` sends rows to `trivia_simple_agent`, which is now `trivia_hermes_agent`"
    )
    assert (caught.value.where or "").startswith("route.yaml:1:")


def test_an_environment_server_of_the_standalone_agent_goes_with_it(trivia) -> None:
    trivia.write(
        HERMES_FILE, HERMES + TRIVIA[TRIVIA.index("trivia_env") :].replace("trivia_simple", "hermes")
    )
    trivia.write("trivia.yaml", TRIVIA[: TRIVIA.index("trivia_env")])
    config = swapped(trivia)
    assert config.servers["trivia_environment_server"].is_generated
    assert any("`trivia_environment_server` is left out" in warning for warning in config.warnings)


def test_an_unknown_agent_type_is_a_usage_error(trivia) -> None:
    with pytest.raises(UsageError) as caught:
        trivia.load("model.yaml", "trivia.yaml", agent_type="hermes_agnt")
    assert "`hermes_agent`" in (caught.value.hint or "")


# ---- overrides that are held back


def test_overrides_of_the_new_agent_are_laid_over_it(trivia) -> None:
    config = swapped(
        trivia,
        overrides=(
            f"{FUTURE}.temperature=0.2",
            f"{FUTURE}.sandbox.image=b",
            f"{FUTURE}.sandbox.limits.memory=2",
            f"{FUTURE}.resources_server.name=other_rs",
            f"{FUTURE}.port=15011",
            "++other_rs={resources_servers: {weather_tool: {entrypoint: app.py, domain: math}}}",
        ),
    )
    block = block_of(config)
    assert block["temperature"] == 0.2
    assert block["sandbox"] == {"image": "b", "limits": {"memory": 2}}
    assert (block["resources_server"]["name"], block["port"]) == ("other_rs", 15011)


@pytest.mark.parametrize(
    ("token", "problem", "near"),
    [
        (f"{FUTURE}.temprature=0", "no such field", "`temperature`"),
        (f"{FUTURE}.sandbox.imgae=0", "no such field", "`image`"),
        (f"{FUTURE}.max_steps=3", "no such field", "temperature"),
        (
            "++trivia_hermes_agent.responses_api_agents.simple_agent.max_steps=3",
            "the composed agent is `responses_api_agents.hermes_agent`",
            "",
        ),
        (
            "++trivia_herms_agent.responses_api_agents.hermes_agent.temperature=3",
            "there is no such agent",
            "`trivia_hermes_agent`",
        ),
    ],
)
def test_overrides_that_fit_nothing_are_errors(trivia, token, problem, near) -> None:
    with pytest.raises(UnsupportedAgentOverrideError) as caught:
        swapped(trivia, overrides=(token,))
    assert problem in caught.value.what
    assert near in caught.value.what
    assert caught.value.where == token.partition("=")[0]


def test_all_overrides_that_fit_nothing_are_told_at_once(trivia) -> None:
    with pytest.raises(UnsupportedAgentOverrideError) as caught:
        swapped(trivia, overrides=(f"{FUTURE}.temprature=0", f"{FUTURE}.sandbox.imgae=0"))
    assert "temprature" in caught.value.what
    assert "imgae" in caught.value.details[0]


def test_an_override_of_the_old_agent_is_told_to_have_no_effect(trivia) -> None:
    old = "++trivia_simple_agent.responses_api_agents.simple_agent"
    config = swapped(trivia, overrides=(f"{old}.max_steps=9", f"{old}.model_server.name=policy_model"))
    [warning] = [text for text in config.warnings if "has no effect" in text]
    assert f"`{old}.max_steps`" in warning
    assert "`trivia_hermes_agent`" in warning


def test_a_new_agent_on_the_command_line_is_an_agent_like_others(trivia) -> None:
    settings = "{entrypoint: app.py, resources_server: {type: resources_servers, name: trivia_rs}}"
    config = swapped(
        trivia, "other.yaml", overrides=(f"++mine_agent.responses_api_agents.simple_agent={settings}",)
    )
    assert "mine_hermes_agent" in config.servers


# ---- after directives


def test_an_inherited_agent_is_replaced_under_its_new_name(trivia) -> None:
    trivia.write(
        "quiz.yaml",
        "config_paths: [trivia.yaml]\n"
        "quiz_simple_agent:\n  _inherit_from: trivia_simple_agent\n"
        "  responses_api_agents:\n    simple_agent:\n      datasets: []\n"
        "quiz2_agent: ${copy:trivia_simple_agent}\n",
    )
    token = "++quiz2_hermes_agent.responses_api_agents.hermes_agent.temperature=0"
    config = trivia.load("model.yaml", "quiz.yaml", agent_type="hermes_agent", overrides=(token,))
    assert block_of(config, "quiz_hermes_agent")["datasets"] == []
    assert block_of(config, "quiz2_hermes_agent")["temperature"] == 0
    assert config.servers["trivia_environment_server"].calls[0].name == "quiz_hermes_agent"
    [name] = [
        item
        for item in explain(config, "trivia_environment_server")
        if item.key.endswith("agent_server.name")
    ]
    assert [(write.kind, str(write.origin)) for write in name.writers] == [
        ("value", "trivia.yaml:14:50"),
        ("rename", "quiz.yaml:3:3"),
        ("rename", "--agent-type hermes_agent"),
    ]
    key = "quiz_hermes_agent.responses_api_agents.hermes_agent.resources_server.name"
    assert [(write.kind, str(write.origin)) for write in explain(config, key)[0].writers] == [
        ("value", "trivia.yaml:6:51"),
        ("directive", "quiz.yaml:3:3"),
        ("composed", "--agent-type hermes_agent"),
    ]


# ---- who wrote it


def test_every_value_of_the_new_agent_has_the_place_that_wrote_it(trivia) -> None:
    config = swapped(trivia, overrides=(f"{FUTURE}.temperature=0.2",))
    prefix = "trivia_hermes_agent.responses_api_agents.hermes_agent"
    places = {key: str(origin) for key, origin in config.origins.items()}
    assert places[f"{prefix}.entrypoint"] == f"{HERMES_FILE}:4:7 via --agent-type hermes_agent"
    assert places[f"{prefix}.resources_server.name"] == "trivia.yaml:6:51 via --agent-type hermes_agent"
    assert places[f"{prefix}.datasets[0].name"] == "trivia.yaml:9:19 via --agent-type hermes_agent"
    assert places[f"{prefix}.temperature"] == f"{FUTURE}.temperature"
    assert places["agent_map.trivia_simple_agent"] == "--agent-type hermes_agent"
    assert (
        places["trivia_environment_server.environment_servers.legacy_agent.agent_server.name"]
        == "trivia.yaml:14:50 via --agent-type hermes_agent"
    )


def test_explain_tells_both_agents_the_swap_and_the_override(trivia) -> None:
    config = swapped(trivia, overrides=(f"{FUTURE}.temperature=0.2",))
    key = "trivia_hermes_agent.responses_api_agents.hermes_agent.temperature"
    [told] = explain(config, key)
    assert [(str(write.origin), write.said, write.kind) for write in told.writers] == [
        (f"{HERMES_FILE}:9:7", 1.0, "value"),
        ("--agent-type hermes_agent", "hermes_agent takes the place of trivia_simple_agent", "composed"),
        (f"{FUTURE}.temperature", 0.2, "value"),
    ]


def test_without_the_flag_the_open_name_is_who_asked(trivia) -> None:
    config = trivia.load("model.yaml", HERMES_FILE, "trivia.yaml")
    assert str(config.origins["agent_map.trivia_simple_agent"]) == f"{HERMES_FILE}:7:9"
