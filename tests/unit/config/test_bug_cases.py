"""Mistakes that other tools made with configurations, one test each, named after the case."""

from __future__ import annotations

import re
import shlex

import pytest

from gymctl.config.telling.explain import explain
from gymctl.errors import (
    ConfigError,
    ConfigInterpolationError,
    ConfigMissingValuesError,
    ConfigPathNotFoundError,
    MalformedConfigPathsError,
    NoServerInstancesError,
    ServerRefNotFoundError,
)

MODEL = """\
policy_model:
  responses_api_models:
    vllm_model: {{entrypoint: app.py, base_url: "{url}", api_key: "${{policy_api_key}}"}}
"""


def test_b01_a_later_file_beats_an_earlier_one_and_an_includer_what_it_includes(bench) -> None:
    bench.write("base.yaml", "judge: {prompt: A, mode: strict}\n")
    bench.write("over.yaml", "judge: {prompt: B}\n")
    bench.write("top.yaml", "config_paths: [base.yaml]\njudge: {mode: lenient}\n")
    assert bench.document("base.yaml", "over.yaml")["judge"] == {"prompt": "B", "mode": "strict"}
    assert bench.document("over.yaml", "base.yaml")["judge"] == {"prompt": "A", "mode": "strict"}
    assert bench.document("top.yaml")["judge"] == {"prompt": "A", "mode": "lenient"}


@pytest.mark.parametrize("depth", ["direct", "nested"])
def test_b02_a_misspelt_reference_names_instance_field_value_and_the_nearest_name(stack, depth: str) -> None:
    weather = (stack.folder / "weather.yaml").read_text()
    if depth == "direct":
        stack.write("weather.yaml", weather.replace("name: weather}", "name: wether}"))
        parts = (
            "`weather_agent`",
            "`resources_server`",
            "wether",
            "did you mean `weather`?",
            "weather.yaml:",
        )
    else:
        judge = "      judge: {model_server: {type: responses_api_models, name: polcy_model}}\n"
        stack.write("weather.yaml", weather + judge)
        parts = ("`weather_agent`", "judge.model_server", "polcy_model", "did you mean `policy_model`?")
    with pytest.raises(ServerRefNotFoundError) as caught:
        stack.load("model.yaml", "weather.yaml")
    for part in parts:
        assert part in str(caught.value)


def test_b03_a_reference_that_ends_nowhere_is_told_with_key_file_and_the_closest_name(stack) -> None:
    stack.write("model.yaml", MODEL.format(url="${policy_bas_url}"))
    with pytest.raises(ConfigInterpolationError) as caught:
        stack.load("model.yaml", "weather.yaml")
    text = str(caught.value)
    assert "policy_model.responses_api_models.vllm_model.base_url" in text
    assert "model.yaml:3" in text
    assert "did you mean `policy_base_url`?" in text


def test_b04_all_values_that_nobody_gave_are_told_at_once_with_how_to_set_them(stack) -> None:
    stack.write("model.yaml", MODEL.format(url="x") + "      temperature: ???\n      size: ???\n")
    weather = "weather:\n  resources_servers:\n    weather_tool:\n      entrypoint: app.py\n"
    stack.write("weather.yaml", f"{weather}      domain: agent\n      city: ???\n")
    stack.write("model.yaml", "policy_model:\n  responses_api_models:\n    vllm_model:\n"
                "      entrypoint: app.py\n      a: ???\n      b: ???\n")  # fmt: skip
    stack.write("not_selected.yaml", "other: {key: '???'}\n")
    with pytest.raises(ConfigMissingValuesError) as caught:
        stack.load("model.yaml", "weather.yaml")
    keys = [
        "policy_model.responses_api_models.vllm_model.a",
        "policy_model.responses_api_models.vllm_model.b",
        "weather.resources_servers.weather_tool.city",
    ]
    text = str(caught.value)
    assert all(key in text and f"++{key}=<value>" in text for key in keys)
    assert "other" not in text


@pytest.mark.parametrize(
    ("content", "error", "parts"),
    [
        ("config_paths: a.yaml\n", MalformedConfigPathsError, ["the string `a.yaml`", "case.yaml:1"]),
        ("config_paths: [7]\n", MalformedConfigPathsError, ["`config_paths[0]`", "`7`", "case.yaml:1"]),
        ("config_paths: [gone.yaml]\n", ConfigPathNotFoundError, ["`gone.yaml`", "case.yaml", "looked for:"]),
        ("a:\n\tb: 1\n", ConfigError, ["case.yaml:2", "tab"]),
        ("", NoServerInstancesError, ["starts no server"]),
        ("- 1\n", ConfigError, ["case.yaml:1", "got a list"]),
    ],
)
def test_b05_each_broken_file_has_an_error_of_its_own(bench, content: str, error: type, parts: list) -> None:
    bench.write("case.yaml", content)
    with pytest.raises(error) as caught:
        bench.load("case.yaml")
    assert "\n" not in caught.value.what
    for part in parts:
        assert part in str(caught.value)


def test_b05_an_empty_file_beside_one_with_servers_is_fine(bench) -> None:
    bench.write("empty.yaml", "")
    assert bench.document("empty.yaml")["weather"]


HARD = {
    "policy_api_key": "sk-ab+cd/ef==",
    "policy_base_url": "http://h:8000/v1?x=1&y=2",
    "note": "a|b",
    "share": "50%",
    "number": "#1",
    "greeting": "你好",
    "device": "mlx5_0:1,mlx5_3:1",
    "path": "C:\\x",
}


@pytest.mark.parametrize("key", HARD)
def test_b08_hard_values_arrive_byte_exact_or_the_error_shows_the_quoting_that_works(bench, key: str) -> None:
    try:
        value = bench.document(overrides=(f"++{key}={HARD[key]}",))[key]
    except ConfigError as error:
        told = re.search(r"for text, quote it twice: (.*)", error.hint or "")
        assert told, error.hint
        value = bench.document(overrides=tuple(shlex.split(told[1])))[key]
    assert value == HARD[key]


@pytest.mark.parametrize("key", HARD)
def test_b08_a_file_takes_every_hard_value(bench, key: str) -> None:
    bench.write("value", HARD[key] + "\n")
    assert bench.document(set_file=(f"{key}=value",))[key] == HARD[key]


def test_b10_a_list_over_a_mapping_is_told_with_both_files_and_the_key(bench) -> None:
    bench.write("a.yaml", "datasets: {x: 1}\n")
    bench.write("b.yaml", "datasets: [1]\n")
    with pytest.raises(ConfigError) as caught:
        bench.document("a.yaml", "b.yaml")
    assert all(part in str(caught.value) for part in ("`datasets`", "a.yaml:1", "b.yaml:1"))


def test_b10_null_over_a_mapping_is_allowed_and_explained(bench) -> None:
    bench.write(
        "one_server.yaml",
        "weather: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n",
    )
    bench.write("a.yaml", "datasets: {x: 1}\n")
    bench.write("b.yaml", "datasets: null\n")
    config = bench.load("one_server.yaml", "a.yaml", "b.yaml")
    assert config.document["datasets"] is None
    [told] = explain(config, "datasets")
    assert [(write.origin.source, write.said) for write in told.writers][-1] == ("b.yaml", None)
    assert "a.yaml" in [write.origin.source for write in told.writers]


def test_b12_a_server_that_stands_twice_in_a_file_is_refused_with_both_lines(stack) -> None:
    stack.write("model.yaml", MODEL.format(url="http://one") + MODEL.format(url="http://two"))
    with pytest.raises(ConfigError, match="`policy_model` stands twice, in lines 1 and 4"):
        stack.load("model.yaml", "weather.yaml")
