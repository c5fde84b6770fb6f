"""Settings of an evaluation in YAML, overrides and flags: read, checked with their place, in order."""

from __future__ import annotations

from typing import Any

import pytest

from gymctl.config.checks.evaluation import Flag, Written, read
from gymctl.config.sources import Selection, bare
from gymctl.config.telling.explain import explain
from gymctl.contract.evaluation import KEYS, EvaluationSettings
from gymctl.errors import ConfigError, ConfigErrors, ConfigInterpolationError, Place


@pytest.fixture
def settings(bench):
    """What `a.yaml`, overrides and typed flags come to."""

    def written(text: str = "", *flags: Flag, **named: Any) -> Written:
        bench.document()
        bench.write("a.yaml", text or "{}")
        config = bench.load("one_server.yaml", "a.yaml", **named)
        return read(config.document, config.origins, flags)

    return written


def refused(settings, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        settings(text)
    return caught.value


def test_every_key_has_its_default_and_nothing_is_said(settings) -> None:
    written = settings()
    assert written.settings == EvaluationSettings()
    assert written.warnings == ()
    assert written.settings.num_repeats == {"_default": 1}


def test_null_is_as_if_the_key_were_not_there(settings) -> None:
    written = settings("".join(f"{key}: null\n" for key in KEYS))
    assert written.settings == EvaluationSettings()
    assert written.warnings == ()


def test_nulls_inside_a_map_unset_an_entry_of_an_earlier_file(settings) -> None:
    written = settings(
        "agent_map: {a: b, c: d}\nnum_repeats: {a: 2, _default: 1}\n", overrides=("++agent_map.a=null",)
    )
    assert written.settings.agent_map == {"c": "d"}


def test_a_flag_beats_an_override_which_beats_env_yaml_which_beats_a_file(bench, settings) -> None:
    bench.write("env.yaml", "num_samples_in_parallel: 2\nlimit: 2\nnum_repeats: 2\nagent_name: env\n")
    written = settings(
        "num_samples_in_parallel: 1\nlimit: 1\nnum_repeats: 1\nagent_name: file\nsplit: train\n",
        Flag("--repeats", "num_repeats", 4),
        Flag("--limit", "limit", 4),
        overrides=("++agent_name=override", "++limit=3", "++num_repeats=3"),
    )
    found = written.settings
    assert (found.num_repeats, found.limit) == ({"_default": 4}, 4)
    assert (found.agent_name, found.num_samples_in_parallel, found.split) == ("override", 2, "train")
    places = [
        written.where(key)
        for key in ("num_repeats", "limit", "agent_name", "num_samples_in_parallel", "split")
    ]
    assert places == ["--repeats", "--limit", "++agent_name", "env.yaml:1:1", "a.yaml:5:1"]


def test_a_flag_changes_its_own_sampling_parameter_only(settings) -> None:
    written = settings(
        "responses_create_params: {temperature: 0.7, reasoning: {effort: low}}\n",
        Flag("--temperature", "responses_create_params.temperature", 0.0),
    )
    assert written.settings.responses_create_params == {"temperature": 0.0, "reasoning": {"effort": "low"}}


def test_a_repeats_flag_replaces_a_map(settings) -> None:
    written = settings("num_repeats: {a: 2, b: 3}\n", Flag("--repeats", "num_repeats", 4))
    assert written.settings.num_repeats == {"_default": 4}


def test_b15_a_flag_that_was_not_typed_resets_nothing(bench, settings) -> None:
    written = settings("num_samples_in_parallel: 4\nupload_rollouts: false\n")
    assert (written.settings.concurrency, written.settings.upload_rollouts) == (4, False)
    assert written.warnings == ()
    (told,) = explain(bench.load("one_server.yaml", "a.yaml"), "num_samples_in_parallel")
    assert [str(write.origin) for write in told.writers] == ["a.yaml:1:1"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("limit: -1", "`limit` must be at least 0, got `-1`"),
        ("limit: 1.5", "`limit` must be a whole number, got `1.5`"),
        ("limit: .inf", "`limit` must be a number, got `inf`"),
        ("limit: true", "`limit` must be a number, got `True`"),
        ("num_repeats: 0", "`num_repeats` must be at least 1, got `0`"),
        ("num_repeats: [2]", "`num_repeats` must be a whole number, got `[2]`"),
        ("num_repeats: {a: 2, b: 0}", "`num_repeats.b` must be at least 1, got `0`"),
        ("num_samples_in_parallel: 0", "`num_samples_in_parallel` must be at least 1, got `0`"),
        ("max_resident_rollout_tasks: few", "`max_resident_rollout_tasks` must be a whole number, got `few`"),
    ],
)
def test_b14_zero_and_less_and_fractions_never_mean_not_set(settings, text: str, what: str) -> None:
    error = refused(settings, f"# a comment\n{text}\n")
    assert error.what == what
    assert (error.where or "").startswith("a.yaml:2:")


@pytest.mark.parametrize("value", ["0", "0.0", "'0'"])
def test_b14_a_limit_of_0_in_yaml_means_all_and_is_told(settings, value: str) -> None:
    written = settings(f"limit: {value}\n")
    assert written.settings.limit is None
    assert written.warnings == (
        "`limit: 0` (a.yaml:1:1) means all rows, as in NeMo Gym; --limit 0 runs none",
    )


def test_b14_a_limit_flag_of_0_means_none(settings) -> None:
    written = settings("limit: 0\n", Flag("--limit", "limit", 0))
    assert (written.settings.limit, written.warnings) == (0, ())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("output_jsonl_fpath: 7", "`output_jsonl_fpath` must be text, got `7`"),
        ("input_jsonl_fpath: ''", "`input_jsonl_fpath` must not be empty, got ``"),
        ("split: example", "`split` must be train, validation or benchmark, got `example`"),
        ("agent_map: a", "`agent_map` must be a mapping, got `a`"),
        ("agent_map: {a: [b]}", "`agent_map.a` must be text, got `['b']`"),
        ("fan_out: {a: b}", "`fan_out.a` must be a list, got `b`"),
        ("fan_out: {a: [b, 1]}", "`fan_out.a[1]` must be text, got `1`"),
        ("fan_out: {a: [b, b]}", "`fan_out.a` names an agent twice"),
        ("interleave_repeats: 1", "`interleave_repeats` must be true or false, got `1`"),
        ("num_repeats_add_seed: 'yes'", "`num_repeats_add_seed` must be true or false, got `yes`"),
        ("responses_create_params: [1]", "`responses_create_params` must be a mapping, got `[1]`"),
        (
            "responses_create_params: {temperature: hot}",
            "`responses_create_params.temperature` must be a number, got `hot`",
        ),
        (
            "responses_create_params: {conversation: [1]}",
            "`responses_create_params.conversation` must be text or a mapping, got `[1]`",
        ),
        ("responses_create_params: {top_k: 3}", "`responses_create_params.top_k` is no parameter"),
        ("skills: {pat: s}", "`skills` needs `path`, got `{'pat': 's'}`"),
        (
            "health_check_ignored_checks: {a: b}",
            "`health_check_ignored_checks` must be a list, got `{'a': 'b'}`",
        ),
        (
            "environment_routing_mode: task",
            "`environment_routing_mode` must be agent, legacy or taskset, got `task`",
        ),
        (
            "environment_routing_mode: legacy",
            "`environment_routing_mode: legacy` needs `environment_server_name`",
        ),
        (
            "environment_routing_mode: taskset",
            "`environment_routing_mode: taskset` needs `environment_server_routes`",
        ),
        ("dispatch_budget_s: -1", "`dispatch_budget_s` must be at least 0, got `-1`"),
        ("dispatch_budget_s: .nan", "`dispatch_budget_s` must be a number, got `nan`"),
        ("dispatch_budget_s: 60", "`dispatch_budget_s` needs `num_samples_in_parallel`"),
        ("resume_from_cache: later", "`resume_from_cache` must be true or false, got `later`"),
    ],
)
def test_wrong_values_are_told_with_their_place(settings, text: str, what: str) -> None:
    error = refused(settings, f"# a comment\n{text}\n")
    assert error.what == what
    assert (error.where or "").startswith("a.yaml:2:")


def test_what_a_budget_needs_may_be_typed_as_a_flag(settings, bench) -> None:
    written = settings("dispatch_budget_s: 60\n", Flag("--concurrency", "num_samples_in_parallel", 2))
    assert (written.settings.dispatch_budget_s, written.settings.concurrency) == (60.0, 2)
    bench.load("one_server.yaml", "a.yaml")  # servers start with it


def test_a_misspelt_sampling_parameter_comes_with_the_right_one_and_null_is_fine(settings) -> None:
    error = refused(settings, "responses_create_params: {temperatur: 1, max_output_tokens: null}\n")
    assert error.hint == "did you mean `temperature`?"


def test_an_empty_list_of_agents_would_drop_rows(settings) -> None:
    error = refused(settings, "fan_out: {a: []}\n")
    assert error.what == "`fan_out.a` is an empty list, and its rows would not be run"


def test_all_problems_of_a_document_are_found(bench) -> None:
    bench.document()
    bench.write("a.yaml", "limit: x\nfan_out: {a: 1}\nnum_repeats: 0\n")
    with pytest.raises(ConfigErrors) as caught:
        bench.load("one_server.yaml", "a.yaml")
    assert [error.where for error in caught.value.errors] == ["a.yaml:2:11", "a.yaml:1:1", "a.yaml:3:1"]


def test_text_that_is_a_number_counts_as_one(settings, monkeypatch) -> None:
    monkeypatch.setenv("HOW_MANY", "3")
    assert settings("num_repeats: ${oc.env:HOW_MANY}\n").settings.num_repeats == {"_default": 3}


def test_agent_name_is_the_default_of_the_map_and_contradicts_another_one(settings) -> None:
    assert settings("agent_name: a\nagent_map: {x: y}\n").settings.routes == {"x": "y", "_default": "a"}
    assert settings("agent_name: a\nagent_map: {_default: a}\n").settings.routes == {"_default": "a"}
    error = refused(settings, "agent_name: a\nagent_map: {_default: b}\n")
    assert error.what == "`agent_name` is `a`, but `agent_map._default` is `b`"
    assert error.where == "a.yaml:1:1"
    assert "a.yaml:2:13" in (error.hint or "")


def test_admission_bounds_concurrency_too(settings) -> None:
    written = settings("num_samples_in_parallel: 8\nmax_resident_rollout_tasks: 3\n")
    assert written.settings.concurrency == 3


def test_a_health_check_that_does_not_exist_is_an_error(settings) -> None:
    error = refused(settings, "health_check_ignored_checks: [model_call_failed, agent_turn_hollw]\n")
    assert error.what == "`agent_turn_hollw` in `health_check_ignored_checks` is no health check"
    assert "agent_turn_hollow" in (error.hint or "")
    written = settings("health_check_ignored_checks: model_call_failed,agent_turn_hollow\n")
    assert written.settings.health_check_ignored_checks == ["model_call_failed", "agent_turn_hollow"]


def test_what_asks_for_nothing_that_is_missing_is_not_warned_about(settings) -> None:
    text = "resume_from_cache: false\nroute_failures_to_sidecar: true\nrequire_complete: true\n"
    assert settings(f"{text}retain_results_in_memory: false\ndisable_health_check: true\n").warnings == ()


def test_without_a_config_env_yaml_and_overrides_are_read(bench) -> None:
    bench.write("env.yaml", "many: 3\nnum_repeats: ${many}\nlimit: 2\nmodel: ${nobody}\n")
    said = bare(Selection(overrides=("++limit=5", "++num_repeat=2")), cwd=bench.folder, environ={})
    document, origins = said.document, said.origins
    [warning] = said.warnings
    assert warning == ("`num_repeat` means nothing to gymctl (++num_repeat); did you mean `num_repeats`?")
    written = read(document, origins)
    assert (written.settings.num_repeats, written.settings.limit) == ({"_default": 3}, 5)
    assert (written.where("num_repeats"), written.where("limit")) == ("env.yaml:2:1", "++limit")


def test_without_a_config_a_setting_that_refers_to_nothing_is_refused(bench) -> None:
    bench.write("env.yaml", "limit: ${nobody}\n")
    with pytest.raises(ConfigInterpolationError, match="`limit` refers to `nobody`") as caught:
        bare(Selection(), cwd=bench.folder, environ={})
    assert caught.value.where == "env.yaml:1:1"


def test_an_error_shows_the_line_that_it_is_about(settings) -> None:
    assert isinstance(refused(settings, "num_repeats: 0\n").where, Place)


def test_b110_a_budget_without_an_end_is_none_and_text_is_a_number(settings) -> None:
    """BUG_CASES B110; what is NaN or below 0 is refused above."""
    assert settings("dispatch_budget_s: .inf").settings.dispatch_budget_s is None
    written = settings("dispatch_budget_s: '30'\nnum_samples_in_parallel: 2\n")
    assert written.settings.dispatch_budget_s == 30.0
