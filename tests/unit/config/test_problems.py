"""A configuration with several mistakes is told about all of them at once."""

from __future__ import annotations

import io

import pytest

from gymctl.cli.output import Console
from gymctl.config.load import load
from gymctl.config.problems import Problems
from gymctl.config.sources import Selection
from gymctl.config.telling.check import check
from gymctl.errors import (
    AlmostServerError,
    ConfigError,
    ConfigErrors,
    ConfigMissingValuesError,
    ConfigPathNotFoundError,
    ServerRefNotFoundError,
)


def errors_of(bench, *config: str, **named) -> list[ConfigError]:
    """What `load` raises, which is what `config check` reports."""
    selection = Selection(config=config, **named)
    with pytest.raises(ConfigError) as caught:
        load(selection, cwd=bench.folder, environ={})
    raised = caught.value.errors if isinstance(caught.value, ConfigErrors) else (caught.value,)
    reported = check(selection, cwd=bench.folder, environ={}).errors
    assert [str(error) for error in raised] == [str(error) for error in reported]
    return list(raised)


def test_mistakes_of_different_kinds_are_told_together(stack) -> None:
    stack.write(
        "bad.yaml",
        "verbose: 1\n"
        "weather_agent: {responses_api_agents: {simple_agent: {resources_server: {name: wether}}}}\n"
        "other: {resources_servers: {weather_tool: {entrypoint: app.py, domain: mathh}}}\n"
        "policy_model: {responses_api_models: {vllm_model: {port: http}}}\n",
    )
    errors = errors_of(stack, "model.yaml", "weather.yaml", "bad.yaml")
    said = [(error.what, error.where) for error in errors]
    lines = [(where or "").rpartition(":")[0] for _, where in said]
    assert lines == ["bad.yaml:1", "bad.yaml:4", "bad.yaml:3", "bad.yaml:2"]
    assert "`verbose` must be true or false, got `1`" in said[0][0]
    assert "`policy_model` looks like a server" in said[1][0]
    assert "`other` looks like a server and is not valid: `domain` is unknown: `mathh`" in said[2][0]
    assert isinstance(errors[3], ServerRefNotFoundError)
    assert errors[3].hint == "did you mean `weather` or `other`?"


def test_a_server_with_a_mistake_is_still_one_that_others_may_name(stack) -> None:
    stack.write("bad.yaml", "weather: {resources_servers: {weather_tool: {domain: mathh}}}\n")
    (error,) = errors_of(stack, "model.yaml", "weather.yaml", "bad.yaml")
    assert isinstance(error, AlmostServerError)


def test_missing_values_do_not_hide_a_wrong_reference_and_cause_no_errors_of_their_own(stack) -> None:
    stack.write(
        "bad.yaml",
        "size: ???\n"
        "weather: {resources_servers: {weather_tool: {port: '${size}'}}}\n"
        "weather_agent: {responses_api_agents: {simple_agent: {resources_server: {name: wether}}}}\n"
        "trivia: {resources_servers: {weather_tool: {entrypoint: app.py, domain: '???'}}}\n",
    )
    missing, reference = errors_of(stack, "model.yaml", "weather.yaml", "bad.yaml")
    assert isinstance(missing, ConfigMissingValuesError)
    assert missing.what == (
        "2 values are missing in the configuration: size, trivia.resources_servers.weather_tool.domain"
    )
    assert isinstance(reference, ServerRefNotFoundError)


def test_all_files_and_tokens_that_cannot_be_read_are_told_before_anything_else(stack) -> None:
    stack.write("tab.yaml", "a:\n\tb: 1\n")
    stack.write("includes.yaml", "config_paths: [nowhere.yaml, tab.yaml]\n")
    stack.write("list.yaml", "- 1\n")
    errors = errors_of(stack, "includes.yaml", "list.yaml", overrides=("a=1", "~b", "+c=1", "+c=2"))
    assert [error.where for error in errors][:2] == ["a", "~b"]
    assert {type(error) for error in errors[2:]} == {ConfigError, ConfigPathNotFoundError}
    assert "nowhere.yaml" in " ".join(error.what for error in errors)
    assert any((error.where or "").startswith("tab.yaml:2") for error in errors)
    assert any((error.where or "").startswith("list.yaml:1") for error in errors)


def test_every_wrong_dataset_and_port_is_told(stack) -> None:
    stack.write(
        "bad.yaml",
        "head_server: {port: 0}\n"
        "weather_agent:\n"
        "  responses_api_agents:\n"
        "    simple_agent:\n"
        "      datasets:\n"
        "      - {name: a, type: example}\n"
        "      - {name: b, type: exampel, jsonl_fpath: b.jsonl, num_repeats: 0}\n",
    )
    errors = errors_of(stack, "model.yaml", "weather.yaml", "bad.yaml")
    said = [(error.what, error.where) for error in errors]
    assert said[0][1] == "bad.yaml:1:15"
    assert ("`weather_agent`: dataset 0 needs `jsonl_fpath`", "bad.yaml:6:10") in said
    assert any("unknown type: `exampel`" in what for what, _ in said)
    assert any("`num_repeats` must be at least 1, got `0`" in what for what, _ in said)


def test_one_value_is_told_once() -> None:
    """The rules of environment servers and the fields of their class both have something to say about it."""
    problems = Problems()
    problems.add(ConfigError("must be above 0"), "it", "queue_timeout_seconds")
    problems.add(ConfigError("must be a number"), "it", "queue_timeout_seconds")
    problems.add(ConfigError("unknown"), "it", "queue_timeout")
    problems.add(ConfigError("no place"))
    problems.add(ConfigError("no place either"))
    assert [error.what for error in problems.errors] == [
        "must be above 0",
        "unknown",
        "no place",
        "no place either",
    ]


def test_several_errors_are_printed_one_after_the_other_with_their_number() -> None:
    stderr = io.StringIO()
    one = ConfigError("`a` is wrong", where="x.yaml:1", hint="right it")
    two = ConfigError("`b` is wrong", where="x.yaml:2")
    Console(err=stderr).error(ConfigErrors([one, two]))
    assert stderr.getvalue() == (
        "error: `a` is wrong\n  --> x.yaml:1\nhint: right it\n\n"
        "error: `b` is wrong\n  --> x.yaml:2\n\n"
        "error: 2 problems in the configuration\n"
    )
