"""Misspelt keys and wrong values in the blocks of servers whose class is known."""

from __future__ import annotations

import pytest

from gymctl.config.sources import Selection
from gymctl.config.telling.check import check
from gymctl.errors import ConfigError, ConfigErrors
from gymctl.runtime import preflight

MODEL = """\
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: http://127.0.0.1:9/v1
      openai_api_key: sk-test-0001
      openai_model: m
"""
AGENT = """\
math:
  resources_servers:
    counter: {entrypoint: app.py, domain: math, description: d, value: v, verified: false}
math_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      model_server: {type: responses_api_models, name: policy_model}
      resources_server: {type: resources_servers, name: math}
"""
PICKY = """\
from pydantic import Field
from gymctl.servers import ResourcesServer, ServerConfig
class Settings(ServerConfig):
    label: str = Field(default="ab", min_length=2)
    scores: list[int] = Field(default=[1], min_length=1)
    tries: int = Field(default=1, ge=1)
    level: float = Field(default=0, lt=1)
    size: int | str = 1
class Picky(ResourcesServer):
    config: Settings
app = Picky.app()
"""


@pytest.fixture
def built_in(make_bench, tmp_path):
    """A folder without servers of its own: the built-in ones are found."""
    bench = make_bench(tmp_path)
    bench.write("model.yaml", MODEL)
    bench.write("agent.yaml", AGENT)
    return bench


def refused(bench, *config: str, overrides: tuple[str, ...] = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        bench.load("model.yaml", "agent.yaml", *config, overrides=overrides)
    return caught.value


def agent(line: str) -> str:
    return f"math_agent:\n  responses_api_agents:\n    simple_agent:\n      {line}\n"


def test_a_misspelt_key_is_an_error_with_its_place_and_the_right_one(built_in) -> None:
    built_in.write("more.yaml", agent("max_step: 3"))
    error = refused(built_in, "more.yaml")
    assert error.what == "`math_agent`: simple_agent does not know `max_step`"
    assert (error.where or "").startswith("more.yaml:4")
    assert error.hint == "did you mean `max_steps`?"


def test_a_misspelt_override_is_an_error_too(built_in) -> None:
    token = "++policy_model.responses_api_models.openai_model.max_http_atempts=5"
    error = refused(built_in, overrides=(token,))
    assert "does not know `max_http_atempts`" in error.what
    assert error.where == token.partition("=")[0]
    assert error.hint == "did you mean `max_http_attempts`?"


def test_a_key_inside_a_field_is_checked_where_its_class_is_strict(built_in) -> None:
    built_in.write(
        "model.yaml",
        "policy_model: {responses_api_models: {scripted_model:"
        " {entrypoint: app.py, faults: {latncy_ms: 5}}}}\n",
    )
    error = refused(built_in)
    assert error.what == "`policy_model`: scripted_model does not know `faults.latncy_ms`"
    assert error.hint == "did you mean `latency_ms`?"


def test_all_mistakes_are_told_at_once(built_in) -> None:
    built_in.write("more.yaml", agent("max_step: 3\n      execute_tools: maybe"))
    error = refused(built_in, "more.yaml")
    assert isinstance(error, ConfigErrors)
    assert len(error.errors) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("max_steps: many", "`max_steps` must be a whole number, got 'many'"),
        ("max_steps: 1.5", "`max_steps` must be a whole number, got 1.5"),
        ("max_steps: 0", "`max_steps` must be at least 1, got 0"),
        ("execute_tools: maybe", "`execute_tools` must be true or false, got 'maybe'"),
        ("skip_verification_reward: [1]", "`skip_verification_reward` must be a number, got [1]"),
        ("tool_accesses: 5", "`tool_accesses` must be a list, got 5"),
        ("model_server: policy_model", "`model_server` must be a mapping, got 'policy_model'"),
    ],
)
def test_a_value_that_the_class_would_refuse_is_an_error_with_its_place(built_in, line, problem) -> None:
    built_in.write("more.yaml", agent(line))
    if line.startswith("model_server"):
        built_in.write("agent.yaml", AGENT.replace("{type: responses_api_models, name: policy_model}", "x"))
    error = refused(built_in, "more.yaml")
    assert error.what == f"`math_agent`: {problem}"
    assert (error.where or "").startswith("more.yaml:4")


@pytest.mark.parametrize(
    "line", ["max_steps: '5'", "max_steps: 5.0", "execute_tools: 'off'", "verified: true"]
)
def test_what_the_class_accepts_is_accepted(built_in, line) -> None:
    built_in.write("more.yaml", agent(line))
    settings = built_in.load("model.yaml", "agent.yaml", "more.yaml").servers["math_agent"].settings
    assert line.partition(":")[0] in settings


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("0012", 'openai_model: "0012"; unquoted, YAML reads it as the number 10 (octal)'),
        ("1:30", 'openai_model: "1:30"; unquoted, YAML reads it as the number 90 (base 60)'),
        ("no", 'openai_model: "no"; unquoted, YAML reads it as the boolean false'),
        ("1_000", 'openai_model: "1_000"; unquoted, YAML reads it as the number 1000'),
        ("1e5", 'openai_model: "1e5"'),
        ("1.10", 'openai_model: "1.10"'),
    ],
)
def test_b09_a_number_where_text_is_meant_is_an_error_that_shows_the_quotes(built_in, written, hint) -> None:
    built_in.write("model.yaml", MODEL.replace("openai_model: m", f"openai_model: {written}"))
    error = refused(built_in)
    assert "`openai_model` must be text" in error.what
    assert (error.where or "").startswith("model.yaml:7")
    assert error.hint == f"for text, quote it: {hint}"


def test_b09_a_date_is_text(built_in) -> None:
    built_in.write("model.yaml", MODEL.replace("openai_model: m", "openai_model: 2024-01-01"))
    config = built_in.load("model.yaml", "agent.yaml")
    assert config.servers["policy_model"].settings["openai_model"] == "2024-01-01"


def test_an_override_that_is_a_number_is_shown_with_both_quotes(built_in) -> None:
    token = "++policy_model.responses_api_models.openai_model.openai_model=12"
    error = refused(built_in, overrides=(token,))
    assert error.hint == f"for text, quote it twice: '{token[:-2]}\"12\"'"


def test_the_value_of_a_secret_is_not_shown(built_in) -> None:
    built_in.write("model.yaml", MODEL.replace("sk-test-0001", "12345678"))
    assert "12345678" not in str(refused(built_in))


@pytest.mark.parametrize(
    "line", ["policy_model_name: 0012", "policy_base_url: 12", "policy_api_key: 12345678"]
)
def test_the_keys_of_the_policy_model_are_text(built_in, line) -> None:
    built_in.write("more.yaml", f"{line}\n")
    error = refused(built_in, "more.yaml")
    assert f"`{line.partition(':')[0]}` must be text" in error.what
    assert "quote" in (error.hint or "")
    assert "12345678" not in str(error)


def test_the_name_of_a_dataset_is_text(built_in) -> None:
    entry = "{name: 0012, type: example, jsonl_fpath: a.jsonl}"
    built_in.write("more.yaml", agent(f"datasets: [{entry}]"))
    error = refused(built_in, "more.yaml")
    assert "dataset 0 `name` must be text, got `10`" in error.what
    assert 'name: "0012"' in (error.hint or "")


def test_the_name_of_a_reference_is_text_for_servers_of_every_kind(bench) -> None:
    bench.write("a.yaml", "a: {resources_servers: {weather_tool: {entrypoint: app.py, domain: math, "
                "judge: {type: responses_api_models, name: 0012}}}}\n")  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        bench.load("a.yaml")
    assert caught.value.what == "`a`: `judge.name` must be text, got 10"


def test_a_field_that_is_null_is_told_when_servers_are_started(built_in) -> None:
    built_in.write("model.yaml", MODEL.replace("sk-test-0001", "${oc.env:GYMCTL_TEST_NO_SUCH_KEY,null}"))
    config = built_in.load("model.yaml", "agent.yaml")
    with pytest.raises(ConfigError) as caught:
        preflight.complete(config)
    assert caught.value.what == "`policy_model`: `openai_api_key` is required and not set"
    assert (caught.value.where or "").startswith("model.yaml:6")


def test_fields_that_nobody_set_are_told_together_when_servers_are_started(built_in) -> None:
    built_in.write(
        "model.yaml", "policy_model: {responses_api_models: {openai_model: {entrypoint: app.py}}}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        preflight.complete(built_in.load("model.yaml", "agent.yaml"))
    assert [error.what.split("`")[3] for error in caught.value.errors] == [
        "openai_base_url",
        "openai_api_key",
        "openai_model",
    ]


def test_a_complete_configuration_starts(built_in) -> None:
    preflight.complete(built_in.load("model.yaml", "agent.yaml"))


@pytest.mark.parametrize("name", ["weather_tool", "legacy_agent"])
def test_a_server_whose_class_is_not_known_takes_any_key(bench, name) -> None:
    bench.write(
        "a.yaml", "a: {resources_servers: {weather_tool: {entrypoint: app.py, domain: math, own: 1}}}\n"
    )
    assert bench.load("a.yaml").servers["a"].settings["own"] == 1


def test_a_slip_in_a_dataset_is_told_for_servers_of_every_kind(built_in) -> None:
    entry = "{name: d, type: example, jsonl_fpath: d.jsonl, mine: 1, num_repeat: 4}"
    built_in.write(
        "d.yaml",
        f"policy_model:\n  responses_api_models:\n    openai_model:\n      datasets:\n        - {entry}\n",
    )
    [warning] = [text for text in built_in.load("model.yaml", "d.yaml").warnings if "datasets" in text]
    assert warning == (
        "`policy_model.datasets[0].num_repeat` means nothing (d.yaml:5:67); did you mean `num_repeats`?"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("label: x", "`label` must have at least 2 characters, got 'x'"),
        ("label: []", "`label` must be text, got []"),
        ("scores: []", "`scores` must not be empty, got []"),
        ("tries: 0", "`tries` must be at least 1, got 0"),
        ("tries: many", "`tries` must be a whole number, got 'many'"),
        ("level: 2", "`level` must be below 1, got 2"),
        ("size: [1]", "`size` must be a whole number or text, got [1]"),
    ],
)
def test_what_a_field_wants_is_said_in_plain_words(built_in, line: str, said: str) -> None:
    built_in.write("resources_servers/picky/app.py", PICKY)
    built_in.write("resources_servers/picky/requirements.txt", "")
    block = f"{{entrypoint: app.py, domain: math, {line}}}"
    built_in.write("more.yaml", f"p:\n  resources_servers:\n    picky: {block}\n")
    assert refused(built_in, "more.yaml").what == f"`p`: {said}"


def test_an_agent_may_be_bound_to_a_model_that_its_class_does_not_read(stack) -> None:
    """`--agent-type` carries the bindings of the agent that it replaces."""
    folder = stack.folder / "responses_api_agents" / "parrot_agent"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").touch()
    (folder / "app.py").write_text(
        "from gymctl.servers import AgentConfig, AgentServer\n\n\n"
        "class ParrotConfig(AgentConfig):\n    answer: str\n\n\n"
        "class Parrot(AgentServer):\n    config: ParrotConfig\n"
    )
    block = (
        "parrot:\n  responses_api_agents:\n    parrot_agent:\n      entrypoint: app.py\n      answer: hello\n"
        "      resources_server: {type: resources_servers, name: weather}\n"
        "      model_server: {type: responses_api_models, name: policy_model}\n"
    )
    stack.write("parrot.yaml", block)
    assert "parrot" in stack.load("model.yaml", "weather.yaml", "parrot.yaml").servers
    stack.write("parrot.yaml", block.replace("model_server", "modl_server"))
    with pytest.raises(ConfigError, match="parrot_agent does not know `modl_server`"):
        stack.load("model.yaml", "weather.yaml", "parrot.yaml")


def test_check_tells_a_slip_once_and_knows_the_keys_of_the_head(built_in) -> None:
    selection = Selection(
        config=("model.yaml", "agent.yaml"), overrides=("++limitt=3", "++head_server.prot=1")
    )
    warnings = check(selection, cwd=built_in.folder, environ={}).warnings
    assert len([text for text in warnings if "`limitt`" in text]) == 1
    assert "`head_server.prot` means nothing (++head_server.prot); did you mean `port`?" in warnings
