"""Reasoning-gym agents under their old names (CONTRACT 1.18)."""

from __future__ import annotations

import pytest

from gymctl.config.shaping.aliases import RENAMED
from gymctl.config.telling.explain import explain

OLD, NEW = "reasoning_gym_orchestrator_agent", "langgraph_orchestrator_reasoning_gym_agent"


@pytest.fixture
def load(bench):
    def load(text: str = "", name: str = NEW, **named):
        bench.write(
            "agent.yaml", f"{name}: {{responses_api_agents: {{simple_agent: {{entrypoint: app.py}}}}}}\n"
        )
        bench.write("more.yaml", text)
        return bench.load("agent.yaml", "more.yaml", **named)

    return load


def test_the_six_names() -> None:
    assert len(RENAMED) == 6
    assert RENAMED["reasoning_gym_claude_code_agent"] == "claude_code_reasoning_gym_agent"
    assert RENAMED[OLD] == NEW


def test_rows_with_the_old_name_are_mapped_without_a_word(load) -> None:
    config = load()
    assert config.document["agent_map"] == {OLD: NEW}
    assert not any("deprecated agent names" in warning for warning in config.warnings)
    [told] = explain(config, f"agent_map.{OLD}")
    assert [write.kind for write in told.writers] == ["alias"]


def test_without_the_new_agent_nothing_happens(load) -> None:
    assert "agent_map" not in load(name="other_agent").document


def test_with_the_old_agent_nothing_happens(load) -> None:
    text = f"{OLD}: {{responses_api_agents: {{simple_agent: {{entrypoint: app.py}}}}}}\nagent_name: {OLD}\n"
    config = load(text)
    assert config.document["agent_name"] == OLD
    assert "agent_map" not in config.document


def test_routes_to_the_old_name_are_rewritten_with_one_warning(load) -> None:
    config = load(f"agent_name: {OLD}\nagent_map: {{a: {OLD}, b: x}}\nfan_out: {{k: [x, {OLD}]}}\n")
    document = config.document
    assert document["agent_name"] == NEW
    assert document["agent_map"] == {"a": NEW, "b": "x", OLD: NEW}
    assert document["fan_out"] == {"k": ["x", NEW]}
    [warning] = [text for text in config.warnings if "deprecated agent names" in text]
    assert f"`{OLD}` is now `{NEW}` (more.yaml:1:1)" in warning
    [told] = explain(config, "agent_name")
    assert [(write.said, write.kind) for write in told.writers] == [
        (OLD, "value"),
        (f"{OLD} is now {NEW}", "alias"),
    ]


def test_the_users_own_route_wins(load) -> None:
    assert load(f"agent_map: {{{OLD}: x}}\n").document["agent_map"] == {OLD: "x"}


def test_an_old_name_leads_to_the_agent_that_took_the_place(stack) -> None:
    stack.write("a.yaml", f"{NEW}: ${{inherit_from:weather_agent}}\n")
    stack.write(
        "mine.yaml",
        "mine: {responses_api_agents: {simple_agent: {entrypoint: app.py,"
        ' resources_server: {type: resources_servers, name: "???"}}}}\n',
    )
    config = stack.load("model.yaml", "weather.yaml", "a.yaml", "mine.yaml")
    composed = "langgraph_orchestrator_reasoning_gym_simple_agent"
    assert config.document["agent_map"] == {NEW: composed, OLD: composed}
