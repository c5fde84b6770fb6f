"""`python -m gymctl.servers`: it serves, stops quickly, and says in one clear line what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gymctl.servers.inprocess import make_part

GOOD = """
from gymctl.servers import ResourcesServer, ResourcesConfig, VerifyRequest, VerifyResponse

class Config(ResourcesConfig):
    number: int = 1

class Good(ResourcesServer):
    config: Config
    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=self.config.number)

app = Good.app()
"""


@asynccontextmanager
async def runner(folder: Path, part: dict):
    (folder / "part.json").write_text(json.dumps(part))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gymctl.servers",
        cwd=folder,
        env={**os.environ, "GYMCTL_PART": str(folder / "part.json")},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def part_for(port: int, **changes) -> dict:
    made = make_part("good", "resources_servers", "good").model_dump(mode="json")
    return {**made, "bind_port": port, **changes}


async def failure(folder: Path, part: dict) -> str:
    """What a server that cannot start says; it must end by itself with exit code 1."""
    async with asyncio.timeout(120), runner(folder, part) as process:
        _, errors = await process.communicate()
        assert process.returncode == 1
        return errors.decode()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_serves_and_a_signal_ends_it_quickly(tmp_path, transport, free_port, workers, number):
    (tmp_path / "app.py").write_text(GOOD)
    part = part_for(free_port, workers=workers, settings={"number": 3})
    async with asyncio.timeout(120), runner(tmp_path, part) as process:
        url = f"http://127.0.0.1:{free_port}"
        ready = await transport.call("GET", f"{url}/readyz")
        assert ready.header("x-gymctl-server") == "good"
        verdict = await transport.call(
            "POST", f"{url}/verify", b'{"responses_create_params":{},"response":{}}'
        )
        assert verdict.json()["reward"] == 3.0
        begin = time.monotonic()
        process.send_signal(number)
        _, errors = await process.communicate()
        assert time.monotonic() - begin < 20
        assert process.returncode == 0
        lines = errors.decode().splitlines()
        assert lines and all(line.startswith("(good) ") for line in lines)


async def test_a_running_request_does_not_hold_the_end_up(tmp_path, transport, free_port):
    lines = ("import asyncio, pathlib", "pathlib.Path('asked').touch()", "await asyncio.sleep(60)", "return")
    slow = "\n".join(f"        {line}" for line in lines)
    (tmp_path / "app.py").write_text(GOOD.replace("        return", slow))
    async with asyncio.timeout(120), runner(tmp_path, part_for(free_port)) as process:
        url = f"http://127.0.0.1:{free_port}"
        await transport.call("GET", f"{url}/readyz")
        call = asyncio.create_task(
            transport.call("POST", f"{url}/verify", b'{"responses_create_params":{},"response":{}}')
        )
        while not (tmp_path / "asked").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()
        assert time.monotonic() - begin < 20
        assert process.returncode == 0
        assert b"Traceback" not in errors
        assert (await call).json() == "Request was cancelled"


async def test_no_entrypoint(tmp_path, free_port):
    text = await failure(tmp_path, part_for(free_port))
    assert "error: there is no `app.py` in the server folder" in text


async def test_no_app(tmp_path, free_port):
    (tmp_path / "app.py").write_text("x = 1\n")
    text = await failure(tmp_path, part_for(free_port))
    assert "error: `app.py` has no `app`" in text
    assert "app = YourServer.app()" in text


async def test_an_import_error_inside_is_shown_with_its_line(tmp_path, free_port):
    (tmp_path / "app.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("\n\nimport no_such_package\n")
    text = await failure(tmp_path, part_for(free_port))
    assert "error: `app.py` failed on import: ModuleNotFoundError: No module named 'no_such_package'" in text
    assert f"{tmp_path}/helper.py:3" in text
    assert "requirements.txt" in text


async def test_a_syntax_error_is_shown_with_its_line(tmp_path, free_port):
    (tmp_path / "app.py").write_text("x = 1\ny = (\n")
    text = await failure(tmp_path, part_for(free_port))
    assert "SyntaxError" in text
    assert f"{tmp_path}/app.py:2" in text


async def test_a_bad_block_names_key_and_value_but_no_secret(tmp_path, free_port):
    (tmp_path / "app.py").write_text(GOOD.replace("number: int = 1", "number: int = 1\n    api_key: int = 0"))
    text = await failure(tmp_path, part_for(free_port, settings={"number": "many"}))
    assert "error: `number`: Input should be a valid integer" in text
    assert "got 'many'" in text
    assert "good.resources_servers.good" in text
    text = await failure(tmp_path, part_for(free_port, settings={"api_key": "hush"}))
    assert "`api_key`" in text and "hush" not in text


async def test_tools_over_mcp_beside_an_mcp_route_of_its_own_are_refused(tmp_path, free_port):
    own = "    config: Config\n    def routes(self, app):\n        super().routes(app)\n"
    own += "        self.get(app, '/mcp', self._reverify_mode)\n"
    (tmp_path / "app.py").write_text(GOOD.replace("    config: Config\n", own))
    text = await failure(tmp_path, part_for(free_port, settings={"expose_tools_over_mcp": True}))
    assert "error: `expose_tools_over_mcp`: the server already serves `/mcp`" in text


async def test_a_taken_port_is_named(tmp_path, free_port):
    (tmp_path / "app.py").write_text(GOOD)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        text = await failure(tmp_path, part_for(free_port))
    assert f"error: cannot listen on 127.0.0.1:{free_port}" in text


def starting(*lines: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return GOOD.replace("    config: Config", f"    config: Config\n    async def startup(self):\n{body}")


async def test_a_port_that_another_takes_between_binding_and_listening_is_named(tmp_path, free_port):
    wait = "while not pathlib.Path('taken').exists(): await asyncio.sleep(0.02)"
    (tmp_path / "app.py").write_text(starting("import asyncio, pathlib", wait))
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", free_port))
        async with asyncio.timeout(120), runner(tmp_path, part_for(free_port)) as process:
            assert process.stderr is not None
            assert b"listens on" in await process.stderr.readline()
            other.listen()
            (tmp_path / "taken").touch()
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1:{free_port}: Address already in use" in errors.decode()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_failing_startup_ends_the_server(tmp_path, free_port, workers):
    (tmp_path / "app.py").write_text(starting("1 / 0"))
    text = await failure(tmp_path, part_for(free_port, workers=workers))
    assert "ZeroDivisionError" in text
    assert all(line.startswith("(good) ") for line in text.splitlines())


async def test_a_start_that_is_refused_is_told_in_a_line(tmp_path, free_port):
    told = 'raise ServerError("no such model file", where="/m.gguf", hint="is it mounted?")'
    (tmp_path / "app.py").write_text(starting("from gymctl.errors import ServerError", told))
    text = await failure(tmp_path, part_for(free_port))
    lines = text.replace("(good) ", "").splitlines()[-3:]
    assert [line.strip() for line in lines] == [
        "error: no such model file",
        "--> /m.gguf",
        "hint: is it mounted?",
    ]
    assert "Traceback" not in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_start_that_takes_long(tmp_path, free_port, number):
    (tmp_path / "app.py").write_text(
        starting("import asyncio, pathlib", "pathlib.Path('begun').touch()", "await asyncio.sleep(60)")
    )
    async with asyncio.timeout(50), runner(tmp_path, part_for(free_port)) as process:
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.05)
        process.send_signal(number)
        _, errors = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in errors


async def test_an_unusable_part_file_is_named(tmp_path, free_port):
    broken = part_for(free_port)
    del broken["session_secret"]
    text = await failure(tmp_path, broken)
    assert "error: the part file is not usable: session_secret" in text
    assert f"{tmp_path}/part.json" in text
