"""Server blocks: what counts as one, what they refer to, where their code is, what is nearly one."""

from __future__ import annotations

import pytest

from gymctl.config.model import Reference
from gymctl.errors import AlmostServerError, ConfigError, NoServerInstancesError, ServerRefNotFoundError


def test_a_stack_is_loaded_in_config_order_with_relays_last(stack) -> None:
    config = stack.load("model.yaml", "weather.yaml")
    assert list(config.servers) == ["policy_model", "weather", "weather_agent", "weather_environment_server"]
    agent = config.servers["weather_agent"]
    assert (agent.kind, agent.implementation, agent.entrypoint) == (
        "responses_api_agents",
        "simple_agent",
        "app.py",
    )
    assert agent.folder == stack.folder / "responses_api_agents/simple_agent"
    assert agent.calls == (
        Reference("resources_server", "resources_servers", "weather"),
        Reference("model_server", "responses_api_models", "policy_model"),
    )
    assert config.servers["weather_environment_server"].is_generated
    assert config.servers["weather_environment_server"].calls == (
        Reference("agent_server", "responses_api_agents", "weather_agent"),
    )


def test_settings_and_document_are_the_same_values(stack) -> None:
    config = stack.load("model.yaml", "weather.yaml")
    for name, server in config.servers.items():
        assert config.document[name][server.kind][server.implementation] == server.settings
    assert config.servers["policy_model"].settings["base_url"] == "http://127.0.0.1:9/v1"


def test_origins_name_the_last_writer(stack) -> None:
    config = stack.load("model.yaml", "weather.yaml", overrides=("++policy_api_key=sk-from-flag",), model="m")
    origins = {key: str(origin) for key, origin in config.origins.items()}
    assert (
        origins["weather_agent.responses_api_agents.simple_agent.resources_server.name"]
        == "weather.yaml:8:51"
    )
    assert origins["policy_base_url"] == "env.yaml:1:1"
    assert origins["policy_api_key"] == "++policy_api_key"
    assert origins["policy_model_name"] == "--model"
    assert origins["head_server.port"] == "default"
    assert "sk-from-flag" not in "".join(origins.values())


def test_empty_and_plain_top_level_values_are_settings(bench) -> None:
    bench.write("a.yaml", "empty: {}\ntext: x\nother: {a: {b: 1}}\nnothing: null\n")
    bench.document()
    config = bench.load("one_server.yaml", "a.yaml")
    assert list(config.servers) == ["weather"]
    assert config.warnings == ()
    assert config.document["empty"] == {}


def test_a_config_that_starts_nothing_is_an_error(bench) -> None:
    bench.write("a.yaml", "k: 1\n")
    with pytest.raises(NoServerInstancesError, match="starts no server"):
        bench.load("a.yaml")
    with pytest.raises(NoServerInstancesError, match="no configuration was named"):
        bench.load()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x: {resources_servers: {weather_tool: {entrypoint: app.py}}}", "`domain` is required"),
        (
            "x: {resources_servers: {weather_tool: {entrypoint: app.py, domain: maths}}}",
            "did you mean `math`?",
        ),
        (
            "x: {responses_api_agents: {a: {entrypoint: app.py}, b: {}}}",
            "exactly one implementation, got 2: `a` (almost.yaml:1:32), `b`;",
        ),
        ("x: {responses_api_agents: {a: {entrypoint: /etc/x.py}}}", "must lie in the server folder"),
        ("x: {responses_api_agents: {a: {entrypoint: ../x.py}}}", "must lie in the server folder"),
        ("x: {responses_api_agents: {'../a': {entrypoint: app.py}}}", "is no folder name"),
        ("x: {responses_api_agents: {a: {entrypoint: app.py, port: 70000}}}", "`port` must be a number"),
        (
            "x: {responses_api_agents: {a: {entrypoint: app.py, num_workers: 0}}}",
            "`num_workers` must be at least 1",
        ),
        (
            "x: {responses_api_agents: {a: {entrypoint: app.py}}, resources_servers: {b: {}}}",
            "two server types",
        ),
        ('"a\\nb": {responses_api_agents: {a: {entrypoint: app.py}}}', "printable text"),
    ],
)
def test_almost_servers_fail_with_the_reason_and_the_place(bench, text, problem) -> None:
    bench.write("almost.yaml", text + "\n")
    with pytest.raises(AlmostServerError) as caught:
        bench.document("almost.yaml")
    assert problem in str(caught.value)
    assert (caught.value.where or "").startswith("almost.yaml:1:")


def test_a_second_implementation_is_pointed_at_where_it_was_written(stack) -> None:
    token = "++policy_model.responses_api_models.vlm_model.base_url"
    with pytest.raises(AlmostServerError) as caught:
        stack.load("model.yaml", "weather.yaml", overrides=(f"{token}=x",))
    assert f"`vllm_model` (model.yaml:3:18), `vlm_model` ({token})" in caught.value.what
    assert caught.value.where == token


def test_all_mistakes_of_an_almost_server_are_told(bench) -> None:
    bench.write(
        "a.yaml", "x: {responses_api_agents: {a: {entrypoint: app.py, num_workers: 0, port: 70000}}}\n"
    )
    with pytest.raises(AlmostServerError) as caught:
        bench.document("a.yaml")
    assert "`num_workers`" in caught.value.what
    assert "also: `port` must be a number from 1 to 65535, got `70000` (a.yaml:1:68)" in caught.value.details


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("responses_api_agent.simple_agent.max_steps", "responses_api_agents"),
        ("max_steps", "weather_agent.responses_api_agents.simple_agent.max_steps"),
    ],
)
def test_a_key_beside_the_server_type_is_warned_about(stack, key, meant) -> None:
    config = stack.load("model.yaml", "weather.yaml", overrides=(f"++weather_agent.{key}=3",))
    (warning,) = (text for text in config.warnings if "reaches no server" in text)
    assert f"(++weather_agent.{key}); did you mean `{meant}`?" in warning


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("++limitt=3", "limit"),
        ("++agent_mpa.a=b", "agent_map"),
        ("++responses_create_param.temperature=1", "responses_create_params"),
        ("++policy_base_ulr=x", "policy_base_url"),
    ],
)
def test_an_override_that_is_almost_a_setting_is_warned_about_by_every_command(
    stack, override, meant
) -> None:
    config = stack.load("model.yaml", "weather.yaml", overrides=(override,))
    (warning,) = (text for text in config.warnings if "means nothing" in text)
    assert warning.endswith(f"({override.partition('=')[0]}); did you mean `{meant}`?")


def test_a_setting_that_something_refers_to_may_be_called_like_a_key(stack) -> None:
    config = stack.load("model.yaml", "weather.yaml", overrides=("++limits=3", "++mine=${limits}"))
    assert not [text for text in config.warnings if "means nothing" in text]


def test_an_almost_server_is_shown_masked(bench) -> None:
    bench.write("a.yaml", "x: {resources_servers: {t: {entrypoint: app.py, api_key: sk-secret-1}}}\n")
    with pytest.raises(AlmostServerError) as caught:
        bench.document("a.yaml")
    assert "entrypoint: app.py" in str(caught.value)
    assert "sk-secret-1" not in str(caught.value)


def test_an_almost_server_can_be_left_out(bench) -> None:
    bench.write(
        "a.yaml", "error_on_almost_servers: false\nx: {resources_servers: {t: {entrypoint: app.py}}}\n"
    )
    bench.document()
    config = bench.load("one_server.yaml", "a.yaml")
    assert list(config.servers) == ["weather"]
    assert "`x`: `domain` is required" in config.warnings[0]


def test_a_block_without_entrypoint_is_told(bench) -> None:
    bench.write("a.yaml", "x: {resources_servers: {t: {domain: math}}}\n")
    bench.document()
    assert "no `entrypoint`" in bench.load("one_server.yaml", "a.yaml").warnings[0]


def test_a_reference_to_a_missing_server_names_everything(stack) -> None:
    key = "++weather_agent.responses_api_agents.simple_agent.resources_server"
    with pytest.raises(ServerRefNotFoundError) as caught:
        stack.load("model.yaml", "weather.yaml", overrides=(f"{key}.name=wether",))
    assert caught.value.what.startswith("`weather_agent` refers to a server that does not exist")
    assert "`resources_server`" in caught.value.what
    assert caught.value.hint == "did you mean `weather`?"
    assert caught.value.where == f"{key}.name"


def test_what_looks_like_a_reference_further_down_is_warned_about_unless_misspelt(stack) -> None:
    key = "++weather_agent.responses_api_agents.simple_agent.judge.model_server"
    token = f"{key}={{type: responses_api_models, name: elsewhere}}"
    config = stack.load("model.yaml", "weather.yaml", overrides=(token,))
    assert any("`judge.model_server`" in warning for warning in config.warnings)
    assert "elsewhere" not in {call.name for call in config.servers["weather_agent"].calls}


def test_a_reference_to_a_server_that_is_left_out_is_an_error(stack) -> None:
    tokens = ("++error_on_almost_servers=false", "++weather.resources_servers.weather_tool.domain=null")
    with pytest.raises(ServerRefNotFoundError, match="name: weather"):
        stack.load("model.yaml", "weather.yaml", overrides=tokens)


def test_an_implementation_may_be_a_folder_in_a_folder(bench) -> None:
    folder = bench.folder / "resources_servers/family/member"
    folder.mkdir(parents=True)
    (folder / "app.py").touch()
    (folder / "requirements.txt").touch()
    bench.write("a.yaml", "x: {resources_servers: {family/member: {entrypoint: app.py, domain: math}}}\n")
    assert bench.load("a.yaml").servers["x"].folder == folder


def test_a_reference_to_a_server_of_another_kind_says_so(stack) -> None:
    token = "++weather_agent.responses_api_agents.simple_agent.resources_server.name=policy_model"
    with pytest.raises(ServerRefNotFoundError, match="`policy_model` is one of responses_api_models"):
        stack.load("model.yaml", "weather.yaml", overrides=(token,))


def test_a_missing_model_points_at_the_flag(stack) -> None:
    with pytest.raises(ServerRefNotFoundError) as caught:
        stack.load("weather.yaml")
    assert "--model-type" in (caught.value.hint or "")
    assert caught.value.where == "weather.yaml:9:50"


def test_a_missing_server_folder_lists_where_it_was_looked_for(bench) -> None:
    bench.write("a.yaml", "w: {resources_servers: {weather_tol: {entrypoint: app.py, domain: math}}}\n")
    with pytest.raises(ConfigError) as caught:
        bench.load("a.yaml")
    assert caught.value.where == "a.yaml:1:39"
    assert "`weather_tool`" in (caught.value.hint or "")
    assert f"  {bench.folder / 'resources_servers/weather_tol'}: no such folder" in caught.value.details


def test_a_server_folder_needs_its_entrypoint_and_requirements(bench) -> None:
    folder = bench.folder / "resources_servers/weather_tool"
    bench.write("a.yaml", "w: {resources_servers: {weather_tool: {entrypoint: other.py, domain: math}}}\n")
    with pytest.raises(ConfigError, match="no server folder") as caught:
        bench.load("a.yaml")
    assert f"  {folder}: no other.py" in caught.value.details
    (folder / "requirements.txt").unlink()
    with pytest.raises(ConfigError) as caught:
        bench.document()
    assert f"  {folder}: neither requirements.txt nor pyproject.toml" in caught.value.details


def test_skip_verification_reaches_agents_that_lack_it(stack) -> None:
    stack.write("skip.yaml", "skip_verification: true\nskip_verification_reward: 0.5\n")
    config = stack.load("model.yaml", "weather.yaml", "skip.yaml")
    assert config.servers["weather_agent"].settings["skip_verification"] is True
    assert config.servers["weather_agent"].settings["skip_verification_reward"] == 0.5
    assert "skip_verification" not in config.servers["weather"].settings


def test_an_override_reaches_a_server_whose_id_holds_a_dot(bench) -> None:
    block = "{resources_servers: {weather_tool: {entrypoint: app.py, domain: math}}}"
    bench.write("a.yaml", f'"math.v1": {block}\nmath_v1: {block}\n')
    config = bench.load("a.yaml", overrides=("++math.v1.resources_servers.weather_tool.domain=games",))
    assert config.servers["math.v1"].settings["domain"] == "games"
    assert config.servers["math_v1"].settings["domain"] == "math"
    assert "math" not in config.document


@pytest.mark.parametrize("name", ["math.v1", "math_v1", "Math v1", "math/v1", "mäth"])
def test_ids_that_only_other_layers_dislike_are_kept(bench, name) -> None:
    bench.write(
        "a.yaml", f'"{name}": {{resources_servers: {{weather_tool: {{entrypoint: app.py, domain: math}}}}}}\n'
    )
    assert list(bench.load("a.yaml").servers) == [name]


@pytest.mark.parametrize("extra", ["", "error_on_almost_servers: false\n"])
def test_a_reference_to_a_block_that_is_not_started_is_an_error(stack, extra: str) -> None:
    """Without an entrypoint, or left out on purpose: nobody will answer there."""
    entrypoint = ", entrypoint: 5" if extra else ""
    model = f"policy_model: {{responses_api_models: {{vllm_model: {{base_url: x{entrypoint}}}}}}}\n"
    stack.write("model.yaml", model + extra)
    with pytest.raises(ServerRefNotFoundError, match="policy_model"):
        stack.load("model.yaml", "weather.yaml")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("name: policy_model}", "name: [policy_model]}", "weather_agent"),
        ("domain: agent}", f"domain: agent, port: '{'9' * 5000}'}}", "`port` must be a number"),
        ("domain: agent}", 'domain: agent, port: "\\ud800"}', "half of a surrogate pair"),
    ],
)
def test_an_odd_value_in_a_block_is_no_bug(stack, old: str, new: str, what: str) -> None:
    stack.write("weather.yaml", (stack.folder / "weather.yaml").read_text().replace(old, new))
    try:
        stack.load("model.yaml", "weather.yaml")
    except ConfigError as error:
        assert what in str(error)
    else:
        assert "[" in new, "a name that is no text refers to nothing"
