"""A project of local processes: up, down, logs, ps, what goes wrong at the start, secrets."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gymctl.runtime import keeper

if TYPE_CHECKING:
    from conftest import Folder

BROKEN = "import no_such_module_4711\n"


def test_up_detached_ps_logs_and_down(folder: Folder) -> None:
    folder.server("tiny")
    folder.server("other")
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr
    assert "ready in" in up.stderr
    assert sorted(folder.processes()) == ["head", "other", "tiny"]

    rows = json.loads(folder.run("ps", "--json").stdout)[0]["servers"]
    assert {row["server"]: row["state"] for row in rows} == {
        "head": "ready",
        "tiny": "ready",
        "other": "ready",
    }
    assert "tiny" in folder.run("ps").stdout
    assert folder.project in folder.run("ps", "--all-projects").stdout

    logs = folder.run("logs", "tiny")
    assert "listens on" in logs.stdout
    assert "other" not in logs.stdout
    assert folder.run("logs", "nobody").returncode == 2

    down = folder.run("down")
    assert down.returncode == 0, down.stderr
    assert folder.processes() == []
    again = folder.run("down")
    assert again.returncode == 0
    assert "nothing" in again.stderr


def test_the_head_lists_addresses_that_answer(folder: Folder) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    with urllib.request.urlopen(f"http://127.0.0.1:{folder.head_port}/global_config_dict_yaml") as answer:
        document = yaml.safe_load(json.loads(answer.read()))
    block = document["tiny"]["resources_servers"]["tiny"]
    with urllib.request.urlopen(f"http://{block['host']}:{block['port']}/") as answer:
        assert answer.status == 200
        assert answer.headers["x-gymctl-project"] == folder.project


def test_a_second_up_changes_only_what_has_changed(folder: Folder) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    before = folder.state["pids"]
    same = folder.up("-d")
    assert same.returncode == 0
    assert "nothing has changed" in same.stderr
    assert folder.state["pids"] == before

    (folder.parts / "left.json").write_text("{}")
    folder.server("tiny", colour="blue")
    assert folder.up("-d").returncode == 0
    assert folder.state["pids"] != before
    assert sorted(folder.processes()) == ["head", "tiny"]
    assert sorted(path.name for path in folder.parts.iterdir()) == ["head.json", "tiny.json"]
    assert "nothing has changed" in folder.up("-d").stderr


def test_a_server_that_crashes_on_import_is_reported_in_seconds(folder: Folder) -> None:
    folder.server("tiny")
    folder.server("broken", BROKEN)
    began = time.monotonic()
    up = folder.up("-d")
    assert up.returncode == 5
    assert time.monotonic() - began < 90, "the limit is 600 s"
    assert "`broken` stopped before it was ready (exit 1" in up.stderr
    assert "no_such_module_4711" in up.stderr
    assert "requirements.txt" in up.stderr
    assert folder.processes() == []
    assert "no_such_module_4711" in (folder.parts.parent / "logs" / "broken.log").read_text()


def test_a_server_that_is_too_slow_is_named_with_its_last_lines(folder: Folder) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    folder.server("slow", 'print("loading a large table", flush=True)\n' + folder.slow_app)
    up = folder.up("-d", "--wait", "10")  # it must have come to say something
    assert up.returncode == 5
    assert "`slow` did not answer within 10 s" in up.stderr
    assert "loading a large table" in up.stderr
    assert "server_spinup_timeout_seconds" in up.stderr
    assert "`tiny`" not in up.stderr
    assert folder.processes() == []


def test_a_server_that_talks_a_lot_before_it_listens_becomes_ready(folder: Folder) -> None:
    talk = 'for number in range(4000):\n    print("x" * 50, number)\n'
    folder.server("tiny", talk + folder.ready_app)
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr
    log = (folder.parts.parent / "logs" / "tiny.log").read_text()
    assert log.count("x" * 50) == 4000


def test_a_port_in_use_is_found_before_anything_starts(folder: Folder) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        folder.server("tiny", port=port)
        up = folder.up("-d")
    assert up.returncode == 3
    assert f"port {port} of `tiny` is in use by" in up.stderr
    assert str(os.getpid()) in up.stderr
    assert not (folder.parts.parent / "project.json").exists()


def test_a_head_port_held_by_another_project_names_that_project(folder: Folder) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    second = folder.run(
        "up", "tiny.yaml", "--project", "second", "--runtime", "process", "-d",
        f"++head_server.port={folder.head_port}",
    )  # fmt: skip
    assert second.returncode == 3
    assert f"gymctl down {folder.project}" in second.stderr


STEAL_ONCE = """\
import json, pathlib, os, socket
parts = pathlib.Path(os.environ["GYMCTL_PART"]).parent
marker = parts.parent / "stolen"
if not marker.exists():
    thief = socket.socket()
    thief.bind(("127.0.0.1", json.loads((parts / "victim.json").read_text())["bind_port"]))
    thief.listen()
    marker.write_text("")
    import time
    time.sleep(60)
"""


def test_a_port_lost_between_choice_and_start_is_replaced(folder: Folder) -> None:
    wait = (
        "import os, pathlib, time\n"
        'marker = pathlib.Path(os.environ["GYMCTL_PART"]).parent.parent / "stolen"\n'
        "while not marker.exists():\n    time.sleep(0.02)\n"
    )
    folder.server("thief", STEAL_ONCE + folder.ready_app)
    folder.server("victim", wait + folder.ready_app)
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr
    assert (folder.parts.parent / "stolen").exists()
    assert sorted(folder.processes()) == ["head", "thief", "victim"]


def test_requirements_that_do_not_install_name_server_and_package(folder: Folder) -> None:
    folder.server("tiny", requirements="no-such-package-gymctl-4711==1.0\n")
    up = folder.up("-d")
    assert up.returncode == 4
    assert "`tiny`" in up.stderr
    assert "no-such-package-gymctl-4711" in up.stderr
    assert len(up.stderr.splitlines()) < 30
    assert folder.processes() == []


def test_a_requirement_in_the_servers_own_folder_is_installed_from_there(folder: Folder) -> None:
    folder.server("tiny", "import mine\n" + folder.ready_app, requirements="./mine\n")
    package = folder.path / "resources_servers" / "tiny" / "mine"
    (package / "mine").mkdir(parents=True)
    (package / "mine" / "__init__.py").write_text("")
    (package / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\n'
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    )
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr


def test_a_second_command_at_the_same_time_is_told_who_is_first(folder: Folder) -> None:
    folder.server("slow", folder.slow_app)
    process = folder.start(*folder.up_arguments())
    folder.wait_for(lambda: "slow" in folder.processes(), process)
    second = folder.up("-d")
    assert second.returncode == 3
    assert "being changed by `gymctl up`" in second.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_secrets_stay_in_the_part_file_of_the_server_that_needs_them(folder: Folder) -> None:
    secret = "sk-planted-4711-abcdef"
    folder.server("tiny", judge_api_key=secret)
    folder.server("other")
    up = folder.up("-d", OPENAI_API_KEY="sk-of-the-user-815", PLANTED=f"Bearer {secret}")
    assert up.returncode == 0, up.stderr
    for row in keeper.find(folder.parts):
        environ = Path(f"/proc/{row.pid}/environ").read_text()
        assert secret not in environ
        assert "sk-of-the-user-815" not in environ
        assert secret not in Path(f"/proc/{row.pid}/cmdline").read_text()
    holding = {
        path.name for path in folder.parts.parent.rglob("*") if path.is_file() and secret in path.read_text()
    }
    assert holding == {"tiny.json"}
    assert stat.S_IMODE((folder.parts / "tiny.json").stat().st_mode) == 0o600
    with urllib.request.urlopen(f"http://127.0.0.1:{folder.head_port}/global_config_dict_yaml") as answer:
        assert secret not in answer.read().decode()


def test_a_model_endpoint_that_never_answers_is_named_with_its_key(folder: Folder) -> None:
    folder.server("tiny")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    up = folder.up(
        "-d", "--model-type", "openai_model", "--model-url", dead, "--model", "m", "--model-api-key", "k",
        "++model_endpoint_readiness_timeout_seconds=2",
    )  # fmt: skip
    assert up.returncode == 1, up.stderr
    assert dead in up.stderr
    assert "policy_model.responses_api_models.openai_model." in up.stderr
    assert "model_endpoint_readiness_timeout_seconds" in up.stderr
    assert folder.processes() == []


def test_a_model_that_is_not_waited_for_does_not_keep_the_project_from_being_ready(folder: Folder) -> None:
    folder.server("tiny")
    up = folder.up(
        "-d", "--model-type", "openai_model", "--model-url", "http://127.0.0.1:9/v1", "--model", "m",
        "--model-api-key", "k", "++model_endpoint_readiness_timeout_seconds=0",
    )  # fmt: skip
    assert up.returncode == 0, up.stderr
    with urllib.request.urlopen(f"http://127.0.0.1:{folder.head_port}/readyz") as answer:
        assert answer.status == 200


def test_logs_of_a_project_that_is_down_were_kept(folder: Folder) -> None:
    key = "sk-planted-4711-abcdef"
    folder.server("tiny", f"print('told', {key!r}, flush=True)\n" + folder.ready_app, judge_api_key=key)
    assert folder.up("-d").returncode == 0
    assert folder.run("down").returncode == 0
    left = [path for path in folder.parts.parent.rglob("*") if path.is_file()]
    assert [path for path in left if key in path.read_text()] == []
    kept = folder.run("logs", "tiny")
    assert kept.returncode == 0
    assert "listens on" in kept.stdout
    assert "told **" in kept.stdout


def test_up_attached_on_a_project_that_is_up_returns(folder: Folder) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    again = folder.up(timeout=60)
    assert again.returncode == 0
    assert "is up already" in again.stderr
    assert sorted(folder.processes()) == ["head", "tiny"]


def test_without_an_engine_auto_runs_processes_and_says_so(folder: Folder) -> None:
    folder.server("tiny")
    folder.runtime = "auto"
    up = folder.up("-d", DOCKER_HOST="unix:///nonexistent")
    assert up.returncode == 0, up.stderr
    assert "without isolation" in up.stderr
    assert sorted(folder.processes()) == ["head", "tiny"]


def test_without_an_engine_compose_says_what_is_missing(folder: Folder) -> None:
    folder.server("tiny")
    folder.runtime = "compose"
    began = time.monotonic()
    up = folder.up("-d", DOCKER_HOST="unix:///nonexistent")
    assert up.returncode == 3
    assert time.monotonic() - began < 30
    assert "/nonexistent" in up.stderr
    assert "hint:" in up.stderr


def test_doctor_speaks_json_and_marks_in_words(folder: Folder) -> None:
    doctor = folder.run("doctor", "--json", DOCKER_HOST="unix:///nonexistent")
    assert doctor.returncode == 0, doctor.stderr
    marks = {finding["mark"] for finding in json.loads(doctor.stdout)}
    assert marks <= {"ok", "warn", "fail", "skip"}


def test_dry_run_starts_nothing(folder: Folder) -> None:
    folder.server("tiny")
    dry = folder.up("--dry-run")
    assert dry.returncode == 0
    assert "python -m gymctl.servers" in dry.stdout
    assert not (folder.path / ".gymctl").exists()


def test_a_server_that_uses_ray_is_told_that_local_processes_have_none(folder: Folder) -> None:
    app = folder.ready_app.replace("config: TinyConfig\n", "config: TinyConfig\n    ray_enabled = True\n")
    folder.server("tiny", app)
    up = folder.up("-d")

    assert up.returncode == 3, up.stderr
    assert "`tiny` uses Ray" in up.stderr
    assert "++ray_head_node_address=" in up.stderr
    joining = folder.up("-d", "++ray_head_node_address=ray://127.0.0.1:9")
    assert joining.returncode == 5, joining.stderr
    assert "Ray, which is not installed" in joining.stderr
