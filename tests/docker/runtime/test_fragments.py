"""The fragments in compose/, as plain `docker compose -f` takes them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uv

FRAGMENTS = Path(__file__).parents[3] / "compose"
APP = """\
from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse


class Tiny(ResourcesServer):
    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        reward = 1.0
        return request.scored(reward=reward)


app = Tiny.app()
"""
STOP_AT = 7


def compose(folder: Any, fragment: str, *words: str, text: str | None = None, **environ: str) -> str:
    rendered = folder.path / ".gymctl" / folder.project / "compose.yaml"
    added = "-" if text is not None else str(FRAGMENTS / fragment)
    done = subprocess.run(
        ["docker", "compose", "-f", str(rendered), "-f", added, *words],
        env={**os.environ, **environ},
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder.path,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_service(fragment: str, own: str, other: str) -> str:
    """What compose/README.md does with sed."""
    return (FRAGMENTS / fragment).read_text("utf-8").replace(f"\n  {own}:", f"\n  {other}:")


@pytest.fixture
def debugpy(tmp_path: Path) -> Path:
    place = tmp_path / "debugpy"
    install = (uv.find_uv_bin(), "pip", "install", "--quiet", "--no-progress", "--target", str(place))
    subprocess.run((*install, "debugpy"), check=True, capture_output=True)
    return place


@pytest.mark.timeout(600)
def test_a_breakpoint_in_a_container_and_an_edit_without_a_build(folder: Any, debugpy: Path) -> None:
    folder.server("tiny", APP)
    assert folder.up("-d").returncode == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    source = folder.path / "resources_servers" / "tiny"
    source.chmod(0o755)
    variables = {
        "GYMCTL_DEBUGPY": str(debugpy),
        "GYMCTL_SOURCE": str(source),
        "GYMCTL_DEBUG_PORT": str(port),
    }
    text = as_service("debug.yaml", "weather", "tiny")
    compose(folder, "debug.yaml", "up", "-d", "--no-deps", "tiny", text=text, **variables)
    url = f"http://127.0.0.1:{folder.state['table']['servers']['tiny']['address']['port']}"
    folder.wait_for(lambda: _answers(url))

    with attached(port) as editor:
        editor.ask("setBreakpoints", source={"path": "/srv/server/app.py"}, breakpoints=[{"line": STOP_AT}])
        editor.ask("configurationDone")
        answers: list[float] = []
        asking = threading.Thread(target=lambda: answers.append(verify(url)))
        asking.start()
        stopped = editor.event("stopped")
        frame = editor.ask("stackTrace", threadId=stopped["threadId"])["stackFrames"][0]
        assert (frame["name"], frame["line"]) == ("verify", STOP_AT)
        assert editor.ask("evaluate", expression="reward", frameId=frame["id"])["result"] == "1.0"
        assert answers == []
        editor.ask("continue", threadId=stopped["threadId"])
        asking.join(30)
        assert answers == [1.0]

    (source / "app.py").write_text(APP.replace("reward = 1.0", "reward = 0.5"))
    compose(folder, "debug.yaml", "restart", "tiny", text=text, **variables)
    folder.wait_for(lambda: _answers(url))
    assert verify(url) == 0.5
    states = json.loads(folder.run("ps", "--json").stdout)[0]["servers"]
    assert {row["server"]: row["state"] for row in states} == {"head": "ready", "tiny": "ready"}


def test_gpu_and_observability_are_read_with_the_rendered_file(folder: Any) -> None:
    folder.server("tiny")
    rendered = folder.path / ".gymctl" / folder.project / "compose.yaml"
    rendered.parent.mkdir(parents=True)
    render = folder.run("config", "render", "tiny.yaml", "--project", folder.project)
    assert render.returncode == 0, render.stderr
    rendered.write_text(render.stdout)
    text = as_service("gpu.yaml", "policy-model", "tiny")
    read = json.loads(compose(folder, "", "config", "--format", "json", text=text, GYMCTL_GPUS="2"))
    device = read["services"]["tiny"]["deploy"]["resources"]["reservations"]["devices"][0]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 2, ["gpu"])
    assert read["services"]["tiny"]["mem_limit"], "the rest of the service is as it was"

    environ = {"GYMCTL_COMPOSE": str(FRAGMENTS)}
    read = json.loads(compose(folder, "observability.yaml", "config", "--format", "json", **environ))
    assert set(read["services"]) == {"head", "tiny", "otel-collector", "prometheus"}
    mounted = [one["source"] for name in ("otel-collector", "prometheus") for one in _volumes(read, name)]
    assert all(Path(source).is_file() for source in mounted)
    assert [one["host_ip"] for one in read["services"]["prometheus"]["ports"]] == ["127.0.0.1"]


def _volumes(read: dict[str, Any], service: str) -> list[dict[str, Any]]:
    return read["services"][service]["volumes"]


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def verify(url: str) -> float:
    body = {
        "responses_create_params": {"input": []},
        "response": {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": []},
    }
    body["response"] |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}  # type: ignore[operator]
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/verify", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return float(json.load(response)["reward"])


class Editor:
    """Speaks the Debug Adapter Protocol, as much of it as a breakpoint needs."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rwb")
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def send(self, command: str, **arguments: Any) -> int:
        self._number += 1
        message = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self._stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._stream.flush()
        return self._number

    def ask(self, command: str, **arguments: Any) -> Any:
        number = self.send(command, **arguments)
        while True:
            message = self._read()
            if message["type"] == "response" and message["request_seq"] == number:
                assert message["success"], message
                return message.get("body")

    def event(self, name: str) -> Any:
        while True:
            found = next((one for one in self._events if one["event"] == name), None)
            if found is not None:
                self._events.remove(found)
                return found.get("body")
            self._read()

    def _read(self) -> dict[str, Any]:
        length = 0
        while (line := self._stream.readline().strip()) or not length:
            assert line or length, "the debugger has hung up"
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(self._stream.read(length))
        if message["type"] == "event":
            self._events.append(message)
        return message


@contextmanager
def attached(port: int) -> Iterator[Editor]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        editor = Editor(connection)
        editor.ask("initialize", adapterID="test", pathFormat="path", linesStartAt1=True)
        editor.send("attach", justMyCode=False)
        editor.event("initialized")
        yield editor
        editor.ask("disconnect", terminateDebuggee=False)
