"""`config check`: what is wrong, and what siblings decide silently."""

from __future__ import annotations

import json

import pytest

from gymctl.cli.main import main
from gymctl.config.sources import Selection
from gymctl.config.telling.check import Report, check

ENV = "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-test-0001\n"


@pytest.fixture
def judges(stack):
    stack.write("base.yaml", "judge: {prompt: A, mode: strict}\n")
    stack.write("over.yaml", "judge:\n  prompt: B\n  mode: strict\n")
    return stack


def report(bench, *config: str, **named) -> Report:
    selection = Selection(config=("model.yaml", "weather.yaml", *config), **named)
    return check(selection, cwd=bench.folder, environ={})


def conflicts(bench, *config: str, **named) -> dict[str, list[tuple[str, object]]]:
    return {
        conflict.key: [(write.origin.source, write.said) for write in conflict.writers]
        for conflict in report(bench, *config, **named).conflicts
    }


def test_siblings_that_differ_are_a_conflict_and_the_later_wins(judges) -> None:
    assert conflicts(judges, "base.yaml", "over.yaml") == {
        "judge.prompt": [("base.yaml", "A"), ("over.yaml", "B")]
    }
    assert conflicts(judges, "over.yaml", "base.yaml") == {
        "judge.prompt": [("over.yaml", "B"), ("base.yaml", "A")]
    }


def test_a_file_may_overrule_what_it_includes(judges) -> None:
    judges.write("top.yaml", "config_paths: [base.yaml]\njudge: {prompt: C}\n")
    assert conflicts(judges, "top.yaml") == {}


def test_a_file_that_includes_both_decides(judges) -> None:
    judges.write("top.yaml", "config_paths: [base.yaml, over.yaml]\njudge: {prompt: C}\n")
    assert conflicts(judges, "top.yaml") == {}
    judges.write("top.yaml", "config_paths: [base.yaml, over.yaml]\n")
    assert list(conflicts(judges, "top.yaml")) == ["judge.prompt"]


def test_a_file_decides_over_what_it_includes_for_the_second_time(judges) -> None:
    """`over.yaml` stands in the list already when `top.yaml` names it, and is included by it all the same."""
    judges.write("top.yaml", "config_paths: [over.yaml]\njudge: {prompt: C}\n")
    assert conflicts(judges, "over.yaml", "top.yaml") == {}


def test_env_yaml_and_overrides_decide(judges) -> None:
    assert conflicts(judges, "base.yaml", "over.yaml", overrides=("++judge.prompt=C",)) == {}
    judges.write("env.yaml", ENV + "judge: {prompt: C}\n")
    assert conflicts(judges, "base.yaml", "over.yaml") == {}


def test_a_mandatory_value_is_no_opinion(judges) -> None:
    judges.write("base.yaml", "judge:\n  prompt: ???\n")
    assert conflicts(judges, "base.yaml", "over.yaml") == {}


def test_secrets_in_a_conflict_are_masked(stack) -> None:
    stack.write("one.yaml", "judge: {api_key: sk-one-00000001}\n")
    stack.write("two.yaml", "judge: {api_key: sk-two-00000002}\n")
    assert conflicts(stack, "one.yaml", "two.yaml") == {
        "judge.api_key": [("one.yaml", "****"), ("two.yaml", "****")]
    }


def test_errors_are_listed_and_exit_with_1(judges, monkeypatch, capsys) -> None:
    monkeypatch.chdir(judges.folder)
    judges.write("bad.yaml", "verbose: 1\ndry_run: 'no'\n")
    with pytest.raises(SystemExit) as caught:
        main(["config", "check", "model.yaml", "weather.yaml", "bad.yaml"])
    assert caught.value.code == 1
    stdout = capsys.readouterr().out
    assert "error: `verbose` must be true or false, got `1`\n  --> bad.yaml:1" in stdout
    assert "error: `dry_run` must be true or false, got `no`\n  --> bad.yaml:2" in stdout
    assert stdout.endswith("\n2 errors, 1 warning\n")


def test_a_right_configuration_exits_with_0_and_tells_its_conflicts(judges, monkeypatch, capsys) -> None:
    monkeypatch.chdir(judges.folder)
    with pytest.raises(SystemExit) as caught:
        main(["config", "check", "model.yaml", "weather.yaml", "base.yaml", "over.yaml", "--json"])
    assert caught.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == []
    assert [conflict["key"] for conflict in found["conflicts"]] == ["judge.prompt"]
    assert len(found["warnings"]) == 1


def test_settings_of_an_evaluation_are_checked_too(judges) -> None:
    judges.write("run.yaml", "limit: x\nnum_repeats: 0\n")
    found = report(judges, "run.yaml")
    assert [error.where for error in found.errors] == ["run.yaml:1:1", "run.yaml:2:1"]


def test_settings_of_an_evaluation_are_told_with_everything_else(judges) -> None:
    judges.write("bad.yaml", "verbose: 1\nnum_repeats: 0\nenvironment_routing_mode: agents\n")
    told = {(error.what.split(",")[0], error.where) for error in report(judges, "bad.yaml").errors}
    assert told == {
        ("`verbose` must be true or false", "bad.yaml:1:1"),
        ("`num_repeats` must be at least 1", "bad.yaml:2:1"),
        ("`environment_routing_mode` must be agent", "bad.yaml:3:1"),
    }


def test_doubts_are_told_beside_errors(stack) -> None:
    """Whoever corrects the error sees at once what else to look at."""
    stack.write("more.yaml", "limitt: 3\nport_range_low: many\nhead_server: {prt: 1}\n")
    found = report(stack, "more.yaml")
    assert [error.what for error in found.errors] == [
        "`port_range_low` must be a whole number, from 1 to 65535, got `many`"
    ]
    assert [warning.split(" (")[0] for warning in found.warnings[1:]] == [
        "`limitt` means nothing to gymctl",
        "`head_server.prt` means nothing",
    ]
    assert found.config is None
