"""The peer's commands become gymctl's own, and what cannot be translated is refused (CONTRACT 12)."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from gymctl.cli import main, peer
from gymctl.cli.peer import HELP, legacy, translate
from gymctl.errors import UsageError


@pytest.mark.parametrize(
    ("peer", "ours"),
    [
        (
            "env start --config a.yaml --config b.yaml --model-type vllm_model -m tiny +head_server.port=1",
            "up --config a.yaml --config b.yaml --model-type vllm_model --model tiny +head_server.port=1",
        ),
        ("env start +config_paths=[a.yaml] --search-dir=x", "up --search-dir x +config_paths=[a.yaml]"),
        ("-v env start --benchmark gsm8k", "up --benchmark gsm8k +verbose=true"),
        ("env start --benchmark gsm8k -v", "up --benchmark gsm8k +verbose=true"),
        (
            "env start --benchmark gsm8k --agent-type simple_agent --allow-unsupported-pairing",
            "up --benchmark gsm8k --agent-type simple_agent --allow-unsupported-pairing",
        ),
        (
            "env start --benchmark gsm8k +allow_unsupported_pairing=true",
            "up --benchmark gsm8k +allow_unsupported_pairing=true",
        ),
        ("env resolve --config a.yaml ++k=1", "config show --config a.yaml ++k=1"),
        (
            "eval run --no-serve -o o.jsonl -i i.jsonl --limit 5 --num-repeats 2 --concurrency 3 -a desk",
            "eval --fresh-by-default --progress text --output o.jsonl --input i.jsonl --limit 5 --repeats 2"
            " --concurrency 3 --agent desk --no-serve",
        ),
        (
            "eval run --benchmark gsm8k +output_jsonl_fpath=out.jsonl ++num_repeats=2 +limit=null +k=1",
            "eval --fresh-by-default --progress text --collate --benchmark gsm8k"
            " +output_jsonl_fpath=out.jsonl ++num_repeats=2 +limit=null +k=1",
        ),
        (
            "eval run --split train --limit 0 --temperature 0",
            "eval --fresh-by-default --progress text --collate --split train --temperature 0",
        ),
        (
            "eval run +agent_map={a:b} --interleave-repeats",
            "eval --fresh-by-default --progress text --collate --interleave-repeats +agent_map={a:b}",
        ),
        (
            "eval run --disable-aggregation",
            "eval --fresh-by-default --progress text --collate ++disable_aggregation=true",
        ),
        ("eval run --resume", "eval --fresh-by-default --progress text --collate ++resume_from_cache=true"),
        ("eval run -h", "eval --help"),
        (
            "eval profile --inputs i.jsonl --rollouts r.jsonl ++allow_partial_rollouts=true",
            "metrics r.jsonl --write-profile --inputs i.jsonl --allow-partial",
        ),
        (
            "eval profile +materialized_inputs_jsonl_fpath=i.jsonl +rollouts_jsonl_fpath=r.jsonl",
            "metrics r.jsonl --write-profile --inputs i.jsonl",
        ),
        ("eval aggregate -i a*.jsonl,b.jsonl -o m.jsonl", "metrics a*.jsonl b.jsonl --aggregate m.jsonl"),
        (
            "eval aggregate --input-glob a.jsonl --output m.jsonl +merge_shards=false +head_server.port=11001"
            " +count_failure_classes_as_zero=[judge_failed,x] ++count_missing_rollouts_as_zero=true",
            "metrics a.jsonl --aggregate m.jsonl --zero judge_failed --zero x --missing-as-zero --no-merge"
            " --head http://127.0.0.1:11001",
        ),
        (
            "eval aggregate -i a.jsonl -o m.jsonl --health-check-workers 2 +health_check_ignored_checks=[a,b]"
            " +disable_health_check=true",
            "metrics a.jsonl --aggregate m.jsonl --no-health-check --health-check-workers 2"
            " --health-check-ignore a,b",
        ),
        (
            "eval run --no-serve --health-check-workers 2 --health-check-ignore a,b",
            "eval --fresh-by-default --progress text --no-serve ++health_check_workers=2"
            " ++health_check_ignored_checks=[a,b]",
        ),
        ("eval health-check runs/x", "health-check runs/x"),
        ("--json eval health-check runs/x", "health-check runs/x --json"),
        (
            "eval health-check runs/x --rollouts-file a.jsonl --workers 3 --ignore-checks a,b",
            "health-check runs/x --rollouts-file a.jsonl --workers 3 --ignore a,b",
        ),
        ("eval health-check runs/x --ignore-checks=a", "health-check runs/x --ignore a"),
        ("eval health-check -h", "health-check --help"),
        ("eval reverify -h", "reverify --help"),
        (
            "eval reverify --rollouts r.jsonl --inputs i.jsonl -o o.jsonl --judge-failed-only --append "
            "--benchmark weather --limit 3 +a=b",
            "reverify r.jsonl --benchmark weather --inputs i.jsonl --output o.jsonl --limit 3 "
            "--append --only judge-failed +a=b",
        ),
        (
            "eval run --no-serve --prompt-config p.yaml",
            "eval --fresh-by-default --progress text --prompt-config p.yaml --no-serve",
        ),
        ("eval prepare --benchmark gsm8k +k=1", "dataset prepare --benchmark gsm8k +k=1"),
        (
            "dataset collate --resources-server x --mode example_validation --output-dir d --download",
            "dataset collate --resources-server x --mode example_validation --output-dir d"
            " ++should_download=true",
        ),
        ("env schema --resources-server mcqa", "dataset schema mcqa"),
        ("dataset collate -h", "dataset collate --help"),
        (
            "dataset render -i a.jsonl --prompt-config p.yaml -o b.jsonl --search-dir s",
            "dataset render --input a.jsonl --prompt-config p.yaml --output b.jsonl --search-dir s",
        ),
        ("env start --help", "up --help"),
    ],
)
def test_a_command_of_the_peer_is_one_of_ours(peer: str, ours: str) -> None:
    assert translate(peer.split()) == ours.split()


@pytest.mark.parametrize(
    ("peer", "what", "hint"),
    [
        ("env start --confg a", "unrecognized arguments: --confg", "`--config`"),
        ("env start --nothing=1 --like", "unrecognized arguments: --nothing --like", None),
        ("env strat", "`gym env strat` is not a command", "`env start`"),
        ("dataset upload", "not supported yet", "dataset collate"),
        ("--jsno env status", "unrecognized arguments: --jsno", "`--json`"),
        ("--json env start", "`gym env start` has no JSON output", None),
        ("eval health-check", "takes one RUN_DIR and no settings", None),
        ("eval health-check a b", "takes one RUN_DIR and no settings", None),
        ("eval health-check a --config b", "takes one RUN_DIR and no settings", None),
        ("env start --json", "unrecognized arguments: --json", None),
        ("env status +k=1", "has no setting `k`", None),
        ("env start --config", "expected one argument", None),
    ],
)
def test_what_cannot_be_translated_is_a_usage_error(peer: str, what: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        translate(peer.split())
    assert what in caught.value.what
    if hint:
        assert hint in (caught.value.hint or "")


def test_secrets_stay_out_of_messages_about_unknown_flags() -> None:
    with pytest.raises(UsageError) as caught:
        translate(["env", "start", "--model-apikey=sk-1234567"])
    assert "sk-1234567" not in str(caught.value)


def test_help_and_version_are_text() -> None:
    assert translate(["--help"]) == HELP
    assert "0.7.0" in str(translate(["--version"]))


def test_version_as_json_has_the_keys_that_clients_read() -> None:
    facts = json.loads(str(translate(["--version", "--json"])))
    assert {"nemo_gym", "python", "python_path", "installation_path"} <= set(facts)
    assert set(facts["dependencies"]) == {"openai", "ray"}
    assert set(facts["system"]) == {"os", "platform", "architecture", "processor", "cpus", "memory_gb"}


@pytest.mark.parametrize(
    ("typed", "ours", "new"),
    [
        (
            "ng_collect_rollouts +agent_name=desk +input_jsonl_fpath=i.jsonl +output_jsonl_fpath=o.jsonl",
            "eval --fresh-by-default --progress text --no-serve +agent_name=desk +input_jsonl_fpath=i.jsonl"
            " +output_jsonl_fpath=o.jsonl",
            "gym eval run --no-serve",
        ),
        ("nemo_gym_run +config_paths=[a.yaml]", "up +config_paths=[a.yaml]", "gym env start"),
        (
            "ng_e2e_collect_rollouts +k=1",
            "eval --fresh-by-default --progress text --collate +k=1",
            "gym eval run",
        ),
        ("ng_dump_config +k=1", "config show +k=1", "gym env resolve"),
        (
            "ng_aggregate_rollouts +input_glob=a*.jsonl +output_jsonl_fpath=m.jsonl",
            "metrics a*.jsonl --aggregate m.jsonl",
            "gym eval aggregate",
        ),
        (
            "ng_reward_profile +materialized_inputs_jsonl_fpath=i +rollouts_jsonl_fpath=r",
            "metrics r --write-profile --inputs i",
            "gym eval profile",
        ),
        ("ng_prepare_benchmark +config_paths=[a]", "dataset prepare +config_paths=[a]", "gym eval prepare"),
        ("ng_prepare_data +output_dirpath=d", "dataset collate +output_dirpath=d", "gym dataset collate"),
        (
            "nemo_gym_materialize_prompts +input_jsonl_fpath=i",
            "dataset render +input_jsonl_fpath=i",
            "gym dataset render",
        ),
    ],
)
def test_a_legacy_program_says_its_new_name_and_runs(
    typed: str, ours: str, new: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CONTRACT 12.4."""
    ran: list[list[str]] = []
    monkeypatch.setattr(main, "main", ran.append)
    program, *rest = typed.split()
    monkeypatch.setattr(sys, "argv", [f"/usr/bin/{program}", *rest])
    with pytest.raises(SystemExit) as ended:
        peer.ng()
    assert (ended.value.code, ran) == (0, [ours.split()])
    assert capsys.readouterr().err == f"deprecated: `{program}` is now `{new}`\n"


def test_every_legacy_program_is_installed() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["project"]
    assert {"gymctl", "gym", "ng", *legacy.PROGRAMS} == set(project["scripts"])
    assert project["scripts"]["ng"] == project["scripts"]["gym"]
    assert {project["scripts"][name] for name in legacy.PROGRAMS} == {"gymctl.cli.entry:ng"}
