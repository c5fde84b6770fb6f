"""Missing values and interpolations: all at once, with their places and what to type (CONTRACT 1.9)."""

from __future__ import annotations

import pytest

from gymctl.errors import ConfigInterpolationError, ConfigMissingValuesError


def test_interpolations_are_resolved(bench, monkeypatch) -> None:
    monkeypatch.setenv("GYMCTL_TEST_VALUE", "from the shell")
    bench.write(
        "a.yaml",
        "a: {b: 1, c: '${.b}'}\nd: '${a.b}'\ne: '${oc.env:GYMCTL_TEST_VALUE}'\n"
        "f: '${oc.env:GYMCTL_NOT_SET,fallback}'\ng: 'x${d}y'\nh: '${a}'\n",
    )
    document = bench.document("a.yaml")
    assert document["d"] == 1
    assert document["e"] == "from the shell"
    assert document["f"] == "fallback"
    assert document["g"] == "x1y"
    assert document["h"] == {"b": 1, "c": 1}


def test_an_override_may_refer_to_a_file(bench) -> None:
    bench.write("a.yaml", "a: 5\n")
    assert bench.document("a.yaml", overrides=("+k=${a}",))["k"] == 5


def test_everything_open_is_listed_in_one_error(stack) -> None:
    (stack.folder / "env.yaml").unlink()
    stack.write(
        "more.yaml", "judge:\n  prompt: ???\n  steps:\n  - ???\n  - '${nothing.here}'\nx: '${.gone}'\n"
    )
    with pytest.raises(ConfigMissingValuesError) as caught:
        stack.load("model.yaml", "weather.yaml", "more.yaml")
    text = str(caught.value)
    for path, place in {
        "judge.prompt": "more.yaml:2:3",
        "judge.steps[0]": "more.yaml:4:5",
        "judge.steps[1]": "more.yaml:5:5",
        "x": "more.yaml:6:1",
        "policy_model.responses_api_models.vllm_model.base_url": "model.yaml:3:38",
        "policy_model.responses_api_models.vllm_model.api_key": "model.yaml:3:70",
    }.items():
        line = next(line for line in caught.value.details if line.startswith(f"`{path}` "))
        assert place in line
    assert text.count("++") == 3


def test_only_interpolations_open_is_its_own_class(stack) -> None:
    stack.write("env.yaml", "policy_api_key: sk-test-0001\n")
    with pytest.raises(ConfigInterpolationError) as caught:
        stack.load("model.yaml", "weather.yaml")
    assert "`policy_base_url`, which nothing defines" in caught.value.details[0]
    assert caught.value.where == "model.yaml:3:38"
    hint = caught.value.hint or ""
    assert "--model-url" in hint
    assert "++policy_base_url=<value>" in hint
    assert "env.yaml" in hint


def test_the_closest_defined_name_is_told(bench) -> None:
    bench.write("a.yaml", "judge_url: x\nurl: '${judge_ulr}'\n")
    with pytest.raises(ConfigInterpolationError) as caught:
        bench.document("a.yaml")
    assert "did you mean `judge_url`?" in caught.value.details[0]


def test_a_server_that_is_not_selected_does_not_count(stack) -> None:
    stack.write("unused.yaml", "x: ???\n")
    assert "policy_model" in stack.load("model.yaml", "weather.yaml").servers


def test_a_reference_to_a_mandatory_value_is_reported_once(bench) -> None:
    bench.write("a.yaml", "a: ???\nb: '${a}'\n")
    with pytest.raises(ConfigMissingValuesError) as caught:
        bench.document("a.yaml")
    assert len(caught.value.details) == 1


def test_a_missing_environment_variable_is_named(bench, monkeypatch) -> None:
    monkeypatch.delenv("GYMCTL_NOT_SET", raising=False)
    bench.write("a.yaml", "a: '${oc.env:GYMCTL_NOT_SET}'\n")
    with pytest.raises(ConfigInterpolationError, match="is missing") as caught:
        bench.document("a.yaml")
    assert "`GYMCTL_NOT_SET`, which is not set (a.yaml:1:1)" in caught.value.details[0]


def test_values_in_a_circle_are_named_in_order(bench) -> None:
    bench.write("a.yaml", "start: '${a}'\na: '${b}'\n")
    bench.write("b.yaml", "b: '${a}'\n")
    with pytest.raises(ConfigInterpolationError) as caught:
        bench.document("a.yaml", "b.yaml")
    assert caught.value.what.endswith("a → b → a")
    assert caught.value.where == "a.yaml:2:1, b.yaml:1:1"


@pytest.mark.parametrize("text", ["a: {x: '${a}'}\n", "a: '${foo:1}'\n", "a: 'p${b}'\nb: 'q${a}'\n"])
def test_what_cannot_be_resolved_is_an_error_of_ours(bench, text) -> None:
    bench.write("a.yaml", text)
    with pytest.raises(ConfigInterpolationError):
        bench.document("a.yaml")


def test_a_nest_of_texts_does_not_fill_the_memory(bench) -> None:
    lines = [f"a{level}: '" + f"${{a{level + 1}}}" * 9 + "'" for level in range(9)]
    bench.write("nest.yaml", "\n".join([*lines, "a9: xxxxxxxxxx", ""]))
    with pytest.raises(ConfigInterpolationError, match="expands to more than"):
        bench.document("nest.yaml")
