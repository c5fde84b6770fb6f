from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

SLOW = "import time\n\ntime.sleep(3600)\n"
BROKEN = "import no_such_module_4711\n"


def answer(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.status, response.headers, response.read()


def finished(process: subprocess.Popen[str], seconds: float = 120) -> str:
    return process.communicate(timeout=seconds)[0]


def why_up(folder: Any) -> tuple[str, str]:
    """Whose fault the last start was, and which."""
    told = folder.run("why", "--up", "--json")
    assert told.returncode == 0, told.stderr
    start = json.loads(told.stdout)["start"]
    return start["server"], start["cause"]


def test_up_detached_ps_logs_and_down(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr
    rows = json.loads(folder.run("ps", "--json").stdout)[0]["servers"]
    assert {row["server"]: row["state"] for row in rows} == {"head": "ready", "tiny": "ready"}
    assert all(row["image"] and row["container"] for row in rows)
    assert folder.project in folder.run("ps", "--all-projects").stdout
    logs = folder.run("logs", "tiny", "--tail", "5")
    assert "listens on" in logs.stdout
    assert "\x1b" not in logs.stdout
    down = folder.run("down")
    assert down.returncode == 0, down.stderr
    assert containers.left() == []


def test_logs_follow_until_the_project_ends(folder: Any) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    following = folder.start("logs", "-f")
    assert any("listens on" in line for line in following.stdout)
    assert folder.run("down").returncode == 0
    assert following.wait(60) == 0


def test_containers_are_closed_and_labelled(folder: Any, containers: Any) -> None:
    folder.server("tiny", judge_api_key="sk-planted-4711-abcdef", resources={"memory": "256m", "pids": 64})
    assert folder.up("-d").returncode == 0
    known = containers.inspect("tiny")
    host = known["HostConfig"]
    assert known["Config"]["User"] not in ("", "0", "0:0", "root")
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["PidsLimit"] == 64
    assert host["Memory"] == host["MemorySwap"] == 256 * 1024**2
    assert host["Init"] is True
    assert host["RestartPolicy"]["Name"] == "no"
    assert host["LogConfig"]["Config"]["max-size"]
    assert [port["HostIp"] for ports in host["PortBindings"].values() for port in ports] == ["127.0.0.1"]
    labels = known["Config"]["Labels"]
    assert labels["dev.gymctl.project"] == folder.project
    assert labels["dev.gymctl.server"] == "tiny"
    assert labels["dev.gymctl.kind"] == "resources_servers"
    assert labels["dev.gymctl.folder"] == str(folder.path.resolve())
    assert "sk-planted-4711-abcdef" not in json.dumps(known)
    name = known["Name"].lstrip("/")
    assert "CapEff:\t0000000000000000" in containers.docker("exec", name, "cat", "/proc/1/status")
    assert "sk-planted" not in containers.docker("exec", name, "cat", "/proc/1/environ")
    mounted = json.loads(containers.docker("exec", name, "cat", "/run/gymctl/part.json"))
    assert mounted["settings"]["judge_api_key"] == "sk-planted-4711-abcdef"


def test_the_rendered_file_runs_by_hand(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    compose = ["docker", "compose", "-f", str(folder.parts.parent / "compose.yaml")]
    subprocess.run([*compose, "down", "-t", "2"], check=True, capture_output=True)
    subprocess.run([*compose, "config", "-q"], check=True)
    subprocess.run([*compose, "up", "-d"], check=True, capture_output=True)
    try:
        folder.wait_for(lambda: _is_up(folder), seconds=120)
        folder.wait_for(
            lambda: containers.inspect("tiny")["State"]["Health"]["Status"] == "healthy", seconds=60
        )
    finally:
        assert folder.run("down").returncode == 0
    assert not folder.parts.exists()
    subprocess.run([*compose, "config", "-q"], check=True)
    subprocess.run([*compose, "down", "-t", "2"], check=True, capture_output=True)


def test_config_render_prints_what_up_writes(folder: Any) -> None:
    folder.server("tiny", judge_api_key="sk-planted-4711-abcdef")
    selection = folder.up_arguments()[1:]
    selection = [part for part in selection if part not in ("--runtime", "compose")]
    before = folder.run("config", "render", *selection)
    assert before.returncode == 0, before.stderr
    assert "sk-planted" not in before.stdout + before.stderr
    check = ["docker", "compose", "-f", "-", "config", "-q"]
    subprocess.run(check, input=before.stdout, text=True, check=True, cwd=folder.path)
    assert folder.up("-d").returncode == 0
    written = (folder.parts.parent / "compose.yaml").read_text()
    after = folder.run("config", "render", *selection)
    assert after.stdout == written
    assert folder.run("down").returncode == 0


def _is_up(folder: Any) -> bool:
    try:
        status = json.loads(answer(f"http://127.0.0.1:{folder.head_port}/gymctl/status")[2])
    except OSError:
        return False
    return status["ready"]


def test_the_head_answers_both_askers_with_addresses_they_can_dial(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    host = json.loads(answer(f"http://127.0.0.1:{folder.head_port}/global_config_dict_yaml")[2])
    port = folder.state["table"]["servers"]["tiny"]["address"]["port"]
    assert f"port: {port}" in host
    name = containers.inspect("tiny")["Name"].lstrip("/")
    code = (
        "import urllib.request as r; "
        "print(r.urlopen('http://head:11000/global_config_dict_yaml').read().decode()); "
        "print(r.urlopen('http://tiny:8000/readyz').status)"
    )
    inside = containers.docker("exec", name, "python", "-c", code)
    assert "host: tiny" in inside
    assert inside.endswith("200\n")


def test_a_server_that_crashes_on_import_is_reported_in_seconds(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    folder.server("broken", BROKEN)
    up = folder.up("-d", "--wait", "300")
    assert up.returncode == 5
    assert "`broken` stopped before it was ready (exit 1" in up.stderr
    assert "no_such_module_4711" in up.stderr
    assert containers.left() == []
    kept = folder.run("logs", "broken")
    assert kept.returncode == 0
    assert "no_such_module_4711" in kept.stdout
    assert why_up(folder) == ("broken", "package missing")


def test_a_server_that_needs_more_memory_is_reported_as_out_of_memory(folder: Any, containers: Any) -> None:
    hungry = "hoard = [bytearray(1024 * 1024) for _ in range(400)]\n"
    folder.server("hungry", hungry + folder.ready_app, resources={"memory": "128m"})
    up = folder.up("-d")
    assert up.returncode == 5
    assert "out of memory" in up.stderr
    assert "memory:" in up.stderr
    assert containers.left() == []
    assert why_up(folder) == ("hungry", "out of memory")


def test_a_server_that_is_too_slow_is_named(folder: Any, containers: Any) -> None:
    folder.server("slow", 'print("loading a large table", flush=True)\n' + SLOW)
    up = folder.up("-d", "--wait", "15")
    assert up.returncode == 5
    assert "`slow` did not answer within 15 s" in up.stderr
    assert "loading a large table" in up.stderr
    assert containers.left() == []
    assert why_up(folder) == ("slow", "too slow to start")


def test_a_server_that_refuses_its_block_or_exits_is_told_by_why_up(folder: Any, containers: Any) -> None:
    refusing = folder.ready_app.replace(
        'colour: str = "red"',
        """colour: str = "red"

    def model_post_init(self, context: object) -> None:
        if self.colour != "red":
            raise ValueError("only red is sold")""",
    )
    assert refusing != folder.ready_app
    folder.server("tiny", refusing, colour="blue")
    up = folder.up("-d")
    assert up.returncode == 5
    assert "only red is sold" in up.stderr
    assert why_up(folder) == ("tiny", "wrong configuration")
    folder.server("tiny", "raise SystemExit('no such colour')\n")
    up = folder.up("-d")
    assert up.returncode == 5
    assert "no such colour" in up.stderr
    assert why_up(folder) == ("tiny", "stopped")
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    assert folder.run("why", "--up").returncode == 2


def test_a_port_in_use_is_found_before_anything_starts(folder: Any, containers: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        folder.server("tiny", port=taken.getsockname()[1])
        up = folder.up("-d")
    assert up.returncode == 3
    assert "of `tiny` is in use by" in up.stderr
    assert containers.left() == []
    assert why_up(folder) == ("tiny", "port taken")


@pytest.mark.parametrize(
    ("numbers", "code"),
    [([signal.SIGHUP, signal.SIGHUP], 129), ([signal.SIGTERM], 143), ([signal.SIGINT, signal.SIGINT], 130)],
)
@pytest.mark.parametrize("moment", ["compose", "ready"])
def test_a_signal_during_start_leaves_nothing(
    folder: Any, containers: Any, numbers: list[int], code: int, moment: str
) -> None:
    """Once while `docker compose up` is at work, once while servers are waited for."""
    folder.server("tiny")
    folder.server("slow", SLOW)
    process = folder.start(*folder.up_arguments())
    wanted = 1 if moment == "compose" else 3
    folder.wait_for(
        lambda: len([row for row in containers.left() if "network" not in row]) >= wanted, process
    )
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.1)
    output = finished(process)
    assert process.returncode == code, output
    assert containers.left() == []


def test_ctrl_c_ends_an_attached_project(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    process = folder.attached()
    process.send_signal(signal.SIGINT)
    output = finished(process)
    assert process.returncode == 130
    assert "stopped and removed" in output
    assert containers.left() == []


def test_down_from_another_terminal_ends_an_attached_project(folder: Any) -> None:
    folder.server("tiny")
    process = folder.attached()
    assert folder.run("down").returncode == 0
    output = finished(process)
    assert process.returncode == 0, output


def test_the_death_of_a_container_is_noticed_at_once(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    process = folder.attached()
    began = time.monotonic()
    containers.docker("kill", containers.inspect("tiny")["Id"])
    output = finished(process)
    assert time.monotonic() - began < 40
    assert process.returncode == 5
    assert "`tiny` stopped (exit 137, killed by signal 9)" in output
    assert containers.left() == []


def test_a_renamed_server_replaces_the_old_one_and_leaves_the_others(folder: Any, containers: Any) -> None:
    """B39."""
    folder.server("keep")
    folder.server("old")
    assert folder.up("-d").returncode == 0
    before = containers.inspect("keep")["Id"]
    del folder.servers["old"]
    folder.server("new")
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr
    assert containers.inspect("keep")["Id"] == before
    names = " ".join(containers.left())
    assert "-new-" in names
    assert "-old-" not in names
    assert "removed" in up.stderr


def test_two_projects_live_side_by_side(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    other = ("up", "tiny.yaml", "--project", f"{folder.project[:40]}-2", "--runtime", "compose", "-d")
    second = folder.run(*other, f"++head_server.port={port}")
    try:
        assert second.returncode == 0, second.stderr
        assert folder.run("ps", folder.project).returncode == 0
        assert folder.run("down").returncode == 2
        assert folder.run("down", f"{folder.project[:40]}-2").returncode == 0
        assert any("tiny" in row for row in containers.left())
    finally:
        folder.run("down", "--all")


def test_leftovers_are_found_by_label_when_no_file_tells_of_them(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    assert folder.up("-d").returncode == 0
    shutil.rmtree(folder.path / ".gymctl")
    down = folder.run("down", folder.project)
    assert down.returncode == 0
    assert "removed 2 leftovers" in down.stderr
    assert containers.left() == []


class _Model(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"object": "list", "data": []}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _up_with_model(folder: Any, host: str) -> subprocess.CompletedProcess[str]:
    server = HTTPServer((host, 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://localhost:{server.server_port}/v1"
    try:
        return folder.up(
            "-d", "--model-type", "openai_model", "--model-url", url, "--model", "m", "--model-api-key", "k",
            "++model_endpoint_readiness_timeout_seconds=300",
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()


def test_the_users_localhost_is_reached_from_a_container(folder: Any) -> None:
    """B42."""
    folder.server("tiny")
    up = _up_with_model(folder, "0.0.0.0")
    assert up.returncode == 0, up.stderr
    assert "host.docker.internal" in up.stderr


def test_a_model_that_listens_on_loopback_only_is_told_at_once(folder: Any, containers: Any) -> None:
    folder.server("tiny")
    up = _up_with_model(folder, "127.0.0.1")  # else it waits for 300 s
    assert up.returncode == 1
    assert "answers on 127.0.0.1 only" in up.stderr
    assert "0.0.0.0" in up.stderr
    assert containers.left() == []
