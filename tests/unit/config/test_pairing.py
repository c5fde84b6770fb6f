"""Which agents and models a resources server accepts, and how that is waived (CONTRACT 1.16)."""

from __future__ import annotations

import pytest

from gymctl.errors import ConfigError, UnsupportedAgentPairingError, UnsupportedModelPairingError

HERMES = """\
hermes_agent:
  responses_api_agents:
    hermes_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: "???"}
      model_server: {type: responses_api_models, name: policy_model}
"""


@pytest.fixture
def picky(stack):
    """A weather server that says whom it accepts in picky.yaml: `allow(text)`."""
    stack.write("responses_api_agents/hermes_agent/app.py", "")
    stack.write("responses_api_agents/hermes_agent/requirements.txt", "")
    stack.write("hermes.yaml", HERMES)

    def load(allowed: str, *files: str, **named):
        block = f"weather: {{resources_servers: {{weather_tool: {{{allowed}}}}}}}\n"
        stack.write("picky.yaml", block)
        return stack.load("model.yaml", "weather.yaml", "picky.yaml", *files, **named)

    return load


@pytest.mark.parametrize("allowed", ["[simple_agent, other_agent]", "simple_agent", "'${names}'"])
def test_an_agent_that_is_not_accepted_is_refused(picky, allowed) -> None:
    with pytest.raises(UnsupportedAgentPairingError) as caught:
        picky(f"allowed_agents: {allowed}", "hermes.yaml", overrides=("++names=[simple_agent]",))
    assert "`hermes_agent` cannot take the place of `weather_agent`" in caught.value.what
    assert (caught.value.where or "").startswith("picky.yaml:1:")
    assert (caught.value.hint or "").startswith("choose --agent-type simple_agent")


@pytest.mark.parametrize("allowed", ["[hermes_agent]", "hermes_agent", "null", "[]"])
def test_an_agent_that_is_accepted_or_not_spoken_of_is_bound(picky, allowed) -> None:
    assert "weather_hermes_agent" in picky(f"allowed_agents: {allowed}", "hermes.yaml").servers


def test_only_a_swap_is_gated(picky) -> None:
    assert "weather_agent" in picky("allowed_agents: [other_agent]").servers


def test_every_rejected_target_is_listed(picky, stack) -> None:
    stack.write(
        "desk.yaml",
        "desk: {resources_servers: {weather_tool: {entrypoint: app.py, domain: math,"
        " allowed_agents: [a, b]}}}\n"
        "desk_agent: {responses_api_agents: {simple_agent: {entrypoint: app.py,"
        " resources_server: {type: resources_servers, name: desk}}}}\n",
    )
    with pytest.raises(UnsupportedAgentPairingError) as caught:
        picky("allowed_agents: [b, c]", "desk.yaml", "hermes.yaml")
    assert len(caught.value.details) == 2
    assert "`desk_agent` uses `desk`, which accepts a, b (desk.yaml:1:94)" in caught.value.details
    assert (caught.value.hint or "").startswith("choose --agent-type b;")


@pytest.mark.parametrize("allowed", ["[openai_model]", "openai_model"])
def test_a_model_server_that_is_not_accepted_is_refused(picky, allowed) -> None:
    with pytest.raises(UnsupportedModelPairingError) as caught:
        picky(f"allowed_model_types: {allowed}")
    assert "`weather_agent` uses the model server `policy_model` (vllm_model)" in caught.value.details[0]
    assert (caught.value.hint or "").startswith("choose --model-type openai_model")
    assert picky("allowed_model_types: [vllm_model]").servers


def test_the_placeholder_of_a_model_passes(stack) -> None:
    stack.write("picky.yaml", "weather: {resources_servers: {weather_tool: {allowed_model_types: [x]}}}\n")
    assert stack.load("weather.yaml", "picky.yaml", needs_model=False).servers


@pytest.mark.parametrize(
    "waived",
    [
        {"allow_unsupported_pairing": True},
        {"overrides": ("++allow_unsupported_pairing=true",)},
        {"environ": {"NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING": "1"}},
    ],
)
def test_both_gates_can_be_waived(picky, waived) -> None:
    both = "allowed_agents: [x], allowed_model_types: [y]"
    assert "weather_hermes_agent" in picky(both, "hermes.yaml", **waived).servers


@pytest.mark.parametrize(
    "not_waived",
    [
        {"overrides": ("++allow_unsupported_pairing=false",)},
        {"overrides": ("++allow_unsupported_pairing=null",)},
        {"environ": {"NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING": "0"}},
        {"environ": {"NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING": "False"}},
        {"environ": {"NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING": ""}},
    ],
)
def test_a_waiver_that_says_no_is_none(picky, not_waived) -> None:
    with pytest.raises(UnsupportedAgentPairingError):
        picky("allowed_agents: [x]", "hermes.yaml", **not_waived)


@pytest.mark.parametrize(("key", "files"), [("allowed_agents", ["hermes.yaml"]), ("allowed_model_types", [])])
def test_a_declaration_that_is_no_list_is_an_error(picky, key, files) -> None:
    with pytest.raises(ConfigError, match="must be a list of names") as caught:
        picky(f"{key}: {{a: 1}}", *files)
    assert key in caught.value.what


STEPS = """\
from gymctl.servers import AgentServer, GymnasiumServer, ResourcesServer

class Mine({base}):
{body}
app = Mine.app()
"""


@pytest.fixture
def styled(stack):
    """`styled(agent, resources)` loads a pair of servers whose classes have these bases (and bodies)."""

    def load(agent: str, resources: str, body: str = "    pass\n", **named):
        texts = {"responses_api_agents/simple_agent": agent, "resources_servers/weather_tool": resources}
        for folder, base in texts.items():
            is_agent = folder.startswith("responses")
            text = STEPS.format(base=base, body=body if is_agent else "    pass\n") if base else ""
            stack.write(f"{folder}/app.py", text)
        return stack.load("model.yaml", "weather.yaml", **named).servers

    return load


PLAYS = "    plays_steps: ClassVar[bool] = True\n    async def run(self): ...\n"


def test_an_agent_that_seeds_and_verifies_is_refused_on_a_step_style_server(styled) -> None:
    with pytest.raises(UnsupportedAgentPairingError) as caught:
        styled("AgentServer", "GymnasiumServer")
    assert "`weather_agent` (simple_agent) seeds, calls tools" in caught.value.what
    assert "`weather` (weather_tool) is step-style" in caught.value.what
    assert (caught.value.where or "").startswith("weather.yaml:8:")
    assert "--agent-type gymnasium_agent" in (caught.value.hint or "")


def test_an_agent_that_plays_steps_is_refused_on_a_server_with_tools(styled) -> None:
    with pytest.raises(UnsupportedAgentPairingError) as caught:
        styled("AgentServer", "ResourcesServer", PLAYS)
    assert "`weather_agent` (simple_agent) plays step-style environments" in caught.value.what
    assert "--agent-type simple_agent" in (caught.value.hint or "")
    assert styled("AgentServer", "ResourcesServer", PLAYS, allow_unsupported_pairing=True)


@pytest.mark.parametrize(
    ("agent", "resources", "body"),
    [
        ("AgentServer", "GymnasiumServer", PLAYS),
        ("AgentServer", "ResourcesServer", "    pass\n"),
        ("AgentServer", "GymnasiumServer", "    async def run(self): ...\n"),  # may go either way
        ("AgentServer", "", PLAYS),  # not on our SDK
        ("", "GymnasiumServer", ""),
    ],
)
def test_pairs_that_may_fit_pass(styled, agent, resources, body) -> None:
    assert "weather_agent" in styled(agent, resources, body)
