"""Commands that need no model: what stands in for one, and what never does (CONTRACT 1.11)."""

from __future__ import annotations

import pytest

from gymctl.config.telling.explain import explain
from gymctl.errors import ConfigError, ServerRefNotFoundError

TOLD = "no model was chosen"


@pytest.fixture
def looking(stack):
    def load(*files: str, **named):
        return stack.load(*files, needs_model=False, **named)

    return load


def told(config) -> list[str]:
    return [warning for warning in config.warnings if TOLD in warning]


def test_a_missing_model_is_stood_in_for(looking, stack) -> None:
    config = looking("weather.yaml")
    assert config.document["policy_model"] == {
        "responses_api_models": {"dummy_model": {"entrypoint": "app.py", "host": "127.0.0.1", "port": -1}}
    }
    assert len(told(config)) == 1
    [writer] = explain(config, "policy_model.responses_api_models.dummy_model.entrypoint")[0].writers
    assert str(writer.origin) == TOLD
    with pytest.raises(ServerRefNotFoundError):
        stack.load("weather.yaml")


def test_values_that_are_referred_to_become_empty_and_env_yaml_wins(looking, stack) -> None:
    stack.write("judge.yaml", "url: ${policy_base_url}\nname: by ${policy_model_name}\n")
    config = looking("weather.yaml", "judge.yaml")
    assert config.document["url"] == "http://127.0.0.1:9/v1"
    assert (config.document["policy_model_name"], config.document["name"]) == ("", "by ")
    assert str(config.origins["policy_base_url"]) == "env.yaml:1:1"


def test_an_open_value_becomes_empty_too(looking, stack) -> None:
    stack.write("open.yaml", "policy_model_name: ???\nname: ${policy_model_name}\n")
    assert looking("weather.yaml", "open.yaml").document["name"] == ""


def test_what_nobody_refers_to_is_not_stood_in_for(looking, stack) -> None:
    stack.write(
        "one.yaml", "weather: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n"
    )
    config = looking("one.yaml")
    assert list(config.servers) == ["weather"]
    assert told(config) == []


def test_a_model_of_the_files_is_a_model(looking) -> None:
    config = looking("model.yaml", "weather.yaml")
    assert list(config.document["policy_model"]["responses_api_models"]) == ["vllm_model"]
    assert told(config) == []


def test_settings_for_a_model_that_nobody_chose_are_folded_over_the_placeholder(looking, stack) -> None:
    stack.write(
        "part.yaml", "policy_model: {responses_api_models: {vllm_model: {temperature: 0, num_workers: 2}}}\n"
    )
    config = looking("weather.yaml", "part.yaml")
    inner = config.document["policy_model"]["responses_api_models"]
    assert list(inner) == ["vllm_model"]
    assert inner["vllm_model"]["entrypoint"] == "app.py"
    assert inner["vllm_model"]["temperature"] == 0
    assert str(config.origins["policy_model.responses_api_models.vllm_model.temperature"]) == "part.yaml:1:52"
    assert str(config.origins["policy_model.responses_api_models.vllm_model.entrypoint"]) == TOLD


def test_a_placeholder_can_be_copied(looking, stack) -> None:
    stack.write("judge.yaml", "judge_model:\n  _copy: policy_model\n")
    config = looking("weather.yaml", "judge.yaml")
    assert config.servers["judge_model"].implementation == "dummy_model"


def test_a_dummy_model_in_a_file_is_folded_for_every_command(stack) -> None:
    stack.write(
        "dummy.yaml", "policy_model: {responses_api_models: {dummy_model: {entrypoint: x.py, note: 1}}}\n"
    )
    config = stack.load("dummy.yaml", "model.yaml", "weather.yaml")
    [(name, block)] = config.document["policy_model"]["responses_api_models"].items()
    assert (name, block["entrypoint"], block["note"]) == ("vllm_model", "app.py", 1)


def test_only_looking_needs_no_folder_for_it(stack) -> None:
    stack.write("dummy.yaml", "policy_model: {responses_api_models: {dummy_model: {entrypoint: app.py}}}\n")
    with pytest.raises(ConfigError, match="no server folder responses_api_models/dummy_model"):
        stack.load("dummy.yaml", "weather.yaml")


@pytest.mark.parametrize("chosen", [{"model": "m"}, {"model_url": "http://x"}, {"model_api_key": "k"}])
def test_nothing_stands_in_where_the_user_began_to_choose(looking, chosen) -> None:
    with pytest.raises(ServerRefNotFoundError):
        looking("weather.yaml", **chosen)
