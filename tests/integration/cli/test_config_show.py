"""`gymctl config show` and `gym` as processes: streams, exit codes, secrets, time."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CONFIG = """\
judge:
  resources_servers:
    judge:
      entrypoint: app.py
      domain: math
      api_key: ${policy_api_key}
      command: serve --with sk-very-secret
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    server = tmp_path / "resources_servers/judge"
    server.mkdir(parents=True)
    (server / "app.py").touch()
    (server / "requirements.txt").touch()
    (tmp_path / "judge.yaml").write_text(CONFIG)
    (tmp_path / "env.yaml").write_text("policy_api_key: sk-very-secret\n")
    return tmp_path


def run(
    folder: Path, *arguments: str, program: str = "gymctl.cli.main:main", called: str = "gymctl"
) -> subprocess.CompletedProcess[str]:
    module, _, function = program.partition(":")
    script = f"import sys; sys.argv[0] = '{called}'; from {module} import {function}; {function}()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_document_goes_to_stdout_masked_by_key_and_by_value(folder) -> None:
    done = run(folder, "config", "show", "judge.yaml", "++note=sk-very-secret!")
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load(done.stdout)
    assert document["judge"]["resources_servers"]["judge"]["command"] == "serve --with ****"
    assert document["note"] == "****!"
    assert document["head_server"]["port"] == 11000
    assert "sk-very-secret" not in done.stdout + done.stderr
    assert "judge.yaml" in done.stderr and "env.yaml" in done.stderr


def test_files_are_listed_in_merge_order_and_warnings_hold_no_secret(folder) -> None:
    (folder / "inner.yaml").write_text("k: 1\n")
    (folder / "outer.yaml").write_text(
        "config_paths: [inner.yaml, inner.yaml]\nsk-very-secret: {responses_api_models: {}}\n"
    )
    done = run(folder, "config", "show", "outer.yaml", "judge.yaml")
    assert done.returncode == 0, done.stderr
    order = [done.stderr.rindex(f"{name}.yaml") for name in ("inner", "outer", "judge", "env")]
    assert order == sorted(order)
    assert "warning: `inner.yaml` is included more than once" in done.stderr
    assert "warning: `****` is ignored" in done.stderr
    assert "sk-very-secret" not in done.stderr


def test_json_is_the_same_document(folder) -> None:
    text = run(folder, "config", "show", "judge.yaml").stdout
    assert json.loads(run(folder, "config", "show", "judge.yaml", "--json").stdout) == yaml.safe_load(text)


def test_the_printed_yaml_loads_again(folder) -> None:
    clear = ("--show-secrets", "--yes")
    first = run(folder, "config", "show", "judge.yaml", *clear)
    assert "sk-very-secret" in first.stdout
    (folder / "env.yaml").unlink()
    (folder / "again.yaml").write_text(first.stdout)
    second = run(folder, "config", "show", "again.yaml", *clear)
    assert second.returncode == 0, second.stderr
    again = yaml.safe_load(second.stdout)
    assert again.pop("config_paths") == ["again.yaml", "judge.yaml"]
    assert again.items() <= yaml.safe_load(first.stdout).items()


def test_secrets_are_not_printed_without_somebody_to_ask(folder) -> None:
    done = run(folder, "config", "show", "judge.yaml", "--show-secrets")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--yes" in done.stderr


@pytest.mark.parametrize(
    ("answer", "code", "is_printed"),
    [(b"y\n", 0, True), (b"n\n", 2, False), (b"\n", 2, False), (b"\x04", 2, False)],
)
def test_on_a_terminal_secrets_are_printed_only_after_a_yes(folder, answer, code, is_printed) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            [sys.executable, "-m", "gymctl", "config", "show", "judge.yaml", "--show-secrets"],
            cwd=folder,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == code, done.stderr
    assert "Print secrets in clear?" in done.stderr
    assert ("sk-very-secret" in done.stdout) == is_printed
    assert done.stdout.startswith("judge:") if is_printed else done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["jugde.yaml"], 1, "`jugde.yaml` not found"),
        (["--benchmark", "nothing-like-it"], 2, "unknown value for --benchmark"),
        (["judge.yaml", "a=1"], 1, "without + or ++"),
        (["judge.yaml", "--agent-type", "x"], 2, "unknown value for --agent-type"),
        (["judge.yaml", "--agent-type", "simple_agent"], 1, "no other agent with a resources server"),
        (["judge.yaml", "--project", "Not Good"], 2, "cannot be a project name"),
        (["judge.yaml", "--bogus"], 2, "--bogus"),
        ([], 1, "no configuration was named"),
    ],
)
def test_each_mistake_has_one_message_and_its_exit_code(folder, arguments, code, text) -> None:
    done = run(folder, "config", "show", *arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_benchmark_is_shown_without_a_model_and_says_so(folder) -> None:
    done = run(folder, "config", "show", "arithmetic", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document["policy_model"]["responses_api_models"]) == ["dummy_model"]
    assert done.stderr.count("no model was chosen") == 1
    up = run(folder, "up", "arithmetic", "--dry-run")
    assert (up.returncode, up.stdout) == (1, "")


def test_show_and_explain_know_the_swapped_agent(folder) -> None:
    chosen = ("weather", "--agent-type", "simple_agent")
    done = run(folder, "config", "show", "--json", *chosen)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["agent_map"] == {"weather_agent": "weather_simple_agent"}
    told = run(folder, "config", "explain", "agent_map.weather_agent", *chosen)
    assert told.stdout.splitlines() == [
        "agent_map.weather_agent = weather_simple_agent",
        "> --agent-type simple_agent  simple_agent takes the place of weather_agent",
    ]
    peers = run(folder, "env", "resolve", "--benchmark", *chosen, program="gymctl.cli.peer:gym")
    assert "weather_simple_agent" in peers.stdout


@pytest.mark.parametrize(
    ("program", "words"),
    [("gymctl.cli.main:main", ("eval",)), ("gymctl.cli.peer:gym", ("eval", "run", "-o", "o.jsonl"))],
)
def test_a_running_project_keeps_its_agent(folder, program, words) -> None:
    done = run(folder, *words, "--no-serve", "--agent-type", "simple_agent", program=program)
    assert done.returncode == 2
    assert "--agent-type and --no-serve do not go together" in done.stderr


def test_gym_env_resolve_prints_the_same(folder) -> None:
    ours = run(folder, "config", "show", "judge.yaml")
    peers = run(folder, "env", "resolve", "--config", "judge.yaml", program="gymctl.cli.peer:gym")
    assert (peers.returncode, peers.stdout) == (0, ours.stdout)


def test_gym_without_a_command_shows_help_and_fails(folder) -> None:
    done = run(folder, program="gymctl.cli.peer:gym")
    assert (done.returncode, done.stdout) == (1, "")
    assert "gym env start" in done.stderr


def test_gym_refuses_unknown_flags_with_exit_2(folder) -> None:
    done = run(folder, "env", "start", "--confg", "x", program="gymctl.cli.peer:gym")
    assert done.returncode == 2
    assert "did you mean `--config`?" in done.stderr


def test_ng_run_says_that_it_is_deprecated_and_reads_overrides(folder) -> None:
    settings = ("+config_paths=[gone.yaml]", "+head_server.port=12000")
    done = run(folder, *settings, program="gymctl.cli.peer:ng", called="ng_run")
    assert done.stderr.startswith("deprecated: `ng_run` is now `gym env start`")
    assert done.returncode == 1
    assert "`gone.yaml` not found" in done.stderr


def test_explain_prints_the_writers_with_the_winner_last(folder) -> None:
    (folder / "more.yaml").write_text("note: one\nused: ${note}\n")
    done = run(folder, "config", "explain", "used", "judge.yaml", "more.yaml", "++note=two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "used = two",
        "> more.yaml:2:1  ${note}",
        "",
        "note = two",
        "  more.yaml:1:1  one",
        "> ++note         two",
    ]


def test_explain_as_json_holds_no_secret(folder) -> None:
    done = run(folder, "config", "explain", "--json", "judge", "judge.yaml")
    assert done.returncode == 0, done.stderr
    by_key = {item["key"]: item for item in json.loads(done.stdout)}
    command = by_key["judge.resources_servers.judge.command"]
    assert command["value"] == "serve --with ****"
    assert [(write["source"], write["line"], write["column"]) for write in command["writers"]] == [
        ("judge.yaml", 7, 7)
    ]
    assert by_key["judge.resources_servers.judge.api_key"]["refers_to"] == ["policy_api_key"]
    assert by_key["policy_api_key"]["writers"][0]["source"] == "env.yaml"
    assert "sk-very-secret" not in done.stdout + done.stderr


def test_explain_of_an_unknown_key_suggests_one(folder) -> None:
    done = run(folder, "config", "explain", "policy_api_kee", "judge.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean `policy_api_key`?" in done.stderr
