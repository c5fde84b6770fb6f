"""Every error class of CONTRACT 1.19 as `gymctl eval` tells it: text, place, exit code, no side effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes.program import gymctl

WEATHER = """\
weather:
  resources_servers:
    weather: {entrypoint: app.py, domain: agent}
weather_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: weather}
      model_server: {type: responses_api_models, name: policy_model}
"""
MODEL = """\
policy_model:
  responses_api_models:
    scripted_model: {entrypoint: app.py}
"""
GOOD = WEATHER + MODEL
FRONT = """\
{name}:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {{type: responses_api_agents, name: {agent}}}
"""
OPEN = GOOD + 'settings:\n  a: ???\n  b: [x, "???"]\n'
ROW = '{"responses_create_params": {"input": "hi"}, "agent_ref": {"name": "weather_agent"}}\n'


@dataclass(frozen=True)
class Case:
    """A configuration with one mistake. `told`: what stderr says, each part."""

    error: str
    told: tuple[str, ...]
    text: str = GOOD
    files: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


CASES = {
    "a file that is not there": Case(
        "ConfigPathNotFoundError",
        (
            "config file `wether.yaml` not found",
            "--> case.yaml:1:",
            "looked for:",
            "did you mean `weather.yaml`",
        ),
        "config_paths: [wether.yaml]\n",
        {"weather.yaml": WEATHER},
    ),
    "config_paths that is a text": Case(
        "MalformedConfigPathsError",
        ("`config_paths` must be a list", "`weather.yaml`", "--> case.yaml:1:", "[a.yaml, b.yaml]"),
        "config_paths: weather.yaml\n",
    ),
    "config_paths that holds a number": Case(
        "MalformedConfigPathsError",
        ("`config_paths[1]` must be a path, got `5`", "--> case.yaml:1:"),
        "config_paths: [case.yaml, 5]\n",
    ),
    "nothing to start": Case(
        "NoServerInstancesError", ("the configuration starts no server", "name a benchmark"), "note: 1\n"
    ),
    "nothing named": Case("NoServerInstancesError", ("no configuration was named",), ""),
    "values that nobody gave": Case(
        "ConfigMissingValuesError",
        (
            "`settings.a` is mandatory and not set (case.yaml:14:",
            "`settings.b[1]` is mandatory and not set (case.yaml:15:",
            "++settings.a=<value>",
        ),
        OPEN,
    ),
    "a reference that ends nowhere": Case(
        "ConfigInterpolationError",
        (
            "policy_model.responses_api_models.scripted_model.note",
            "refers to `policy_bas_ulr`, which nothing defines (did you mean `policy_base_ulr`?)",
            "(case.yaml:",
        ),
        GOOD.replace(
            "scripted_model: {entrypoint: app.py}",
            "scripted_model: {entrypoint: app.py, note: '${policy_bas_ulr}'}",
        )
        + "policy_base_ulr: x\n",
    ),
    "values in a circle": Case(
        "ConfigInterpolationError",
        ("values refer to each other in a circle: a → b → a", "case.yaml:13", "case.yaml:14"),
        GOOD + "a: ${b}\nb: ${a}\n",
    ),
    "a server that is not there": Case(
        "ServerRefNotFoundError",
        ("`weather_agent` refers to a server", "name: wether", "--> case.yaml:8:", "did you mean `weather`?"),
        GOOD.replace("resources_servers, name: weather}", "resources_servers, name: wether}"),
    ),
    "a block that is not there to inherit": Case(
        "InheritPathNotFoundError",
        ("inherits from `wether`", "--> case.yaml:13:", "did you mean `weather` or"),
        GOOD + "copy_of_it: {_inherit_from: wether}\n",
    ),
    "a block that is almost a server": Case(
        "AlmostServerError",
        (
            "`weather` looks like a server",
            "`domain` is required",
            "--> case.yaml:",
            "error_on_almost_servers",
        ),
        GOOD.replace(", domain: agent", ""),
    ),
    "an agent that nobody fronts": Case(
        "AgentWithoutEnvironmentServerError",
        ("no environment server fronts `weather_agent`", "environment_servers:", "add these blocks"),
        GOOD + "error_on_agent_without_environment_server: true\n",
    ),
    "an agent that two front": Case(
        "AmbiguousEnvironmentServerError",
        ("several environment servers front the agent `weather_agent`: one, two", "hint:"),
        GOOD
        + FRONT.format(name="one", agent="weather_agent")
        + FRONT.format(name="two", agent="weather_agent"),
    ),
    "an agent that became two": Case(
        "AmbiguousAgentRenameError",
        ("weather_agent", "--> case.yaml:"),
        GOOD
        + FRONT.format(name="front", agent="weather_agent")
        + "first: {_inherit_from: weather_agent}\nsecond: {_inherit_from: weather_agent}\n",
    ),
    "an agent without others to replace": Case(
        "AgentCompositionError",
        ("the agent `loner` leaves its `resources_server` open", "--> case.yaml:", "hint:"),
        MODEL
        + "loner: {responses_api_agents: {simple_agent: {entrypoint: app.py,\n"
        + "  resources_server: {type: resources_servers, name: '???'},\n"
        + "  model_server: {type: responses_api_models, name: policy_model}}}}\n",
    ),
    "an agent that the verifier does not accept": Case(
        "UnsupportedAgentPairingError",
        ("the agent `simple_agent` cannot take the place of `weather_agent`", "--> case.yaml:3:"),
        GOOD.replace("domain: agent}", "domain: agent, allowed_agents: [other_agent]}"),
        arguments=("--agent-type", "simple_agent"),
    ),
    "a model that the verifier does not accept": Case(
        "UnsupportedModelPairingError",
        ("the model server of `weather_agent` is not one that `weather` accepts", "--> case.yaml:3:"),
        GOOD.replace("domain: agent}", "domain: agent, allowed_model_types: [vllm_model]}"),
    ),
    "an override for an agent that has no such field": Case(
        "UnsupportedAgentOverrideError",
        ("no_such_field", "weather_simple_agent", "--> ++weather_simple_agent"),
        arguments=(
            "--agent-type",
            "simple_agent",
            "++weather_simple_agent.responses_api_agents.simple_agent.no_such_field=1",
        ),
    ),
    "YAML that is none": Case("ConfigError", ("not valid YAML", "--> case.yaml:2:"), "a: 1\n\tb: 2\n"),
    "a key that stands twice": Case(
        "ConfigError",
        ("`note` stands twice, in lines 13 and 14", "--> case.yaml:14:"),
        GOOD + "note: 1\nnote: 2\n",
    ),
    "a top level that is a list": Case(
        "ConfigError", ("must be a mapping, got a list", "case.yaml:1"), "- a\n"
    ),
    "an override without a plus": Case(
        "ConfigError", ("`note` cannot be set without + or ++", "++note=<value>"), arguments=("note=1",)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_configuration_is_told_and_touches_nothing(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for file, text in {
        "case.yaml": case.text,
        **case.files,
        "rows.jsonl": ROW,
        "out.jsonl": "kept\n",
    }.items():
        (tmp_path / file).write_text(text)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    named = () if name == "nothing named" else ("case.yaml",)
    done = gymctl(
        "--debug", "eval", *named, "-i", "rows.jsonl", "-o", "out.jsonl", *case.arguments, cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    traceback, _, told = done.stderr.rpartition("error: ")
    assert f"gymctl.errors.{case.error}: " in traceback
    for part in case.told:
        assert part in told
    assert done.stdout == ""
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
