from __future__ import annotations

import pytest

from gymctl.contract.servers import Address, ServerEntry, ServerTable
from gymctl.engine import Endpoint, Engine, EngineFacts
from gymctl.errors import EngineError, PrerequisiteError
from gymctl.paths import ProjectPaths
from gymctl.programs import Finished
from gymctl.runtime.containers import ComposeStack
from gymctl.runtime.ready import PortTakenError
from gymctl.runtime.state import ProjectState


@pytest.fixture
def stack() -> ComposeStack:
    address = Address(kind="resources_servers", implementation="weather", host="127.0.0.1", port=18001)
    state = ProjectState(
        project="weather-1a2b",
        runtime="compose",
        head_url="http://127.0.0.1:11000",
        table=ServerTable(servers={"weather": ServerEntry(name="weather", address=address)}),
        services={"weather": "weather"},
        inputs="",
    )
    engine = Engine(Endpoint("default", "unix:///nonexistent"), EngineFacts("26.1.5", (1, 45), "amd64"))
    return ComposeStack(ProjectPaths.of("weather-1a2b"), state, engine)


def failed(*lines: str) -> Finished:
    return Finished("docker compose up -d", 1, "", lines)


@pytest.mark.parametrize(
    "line",
    [
        "driver failed: Bind for 127.0.0.1:18001 failed: port is already allocated",
        "Error: listen tcp4 127.0.0.1:18001: bind: address already in use",
    ],
)
def test_a_port_that_the_engine_says_is_taken_is_tried_again(stack: ComposeStack, line: str) -> None:
    error = stack.failure(failed(line))
    assert isinstance(error, PortTakenError)
    assert (error.server, error.port) == ("weather", 18001)


def test_the_heads_port_is_the_heads(stack: ComposeStack) -> None:
    error = stack.failure(failed("listen tcp 127.0.0.1:11000: bind: address already in use"))
    assert isinstance(error, PortTakenError)
    assert error.server == "head"


def test_running_out_of_networks_is_explained(stack: ComposeStack) -> None:
    """B40."""
    text = "could not find an available, non-overlapping IPv4 address pool among the defaults"
    error = stack.failure(failed(text))
    assert isinstance(error, PrerequisiteError)
    assert "default-address-pools" in (error.hint or "")


def test_a_missing_image_says_what_to_do(stack: ComposeStack) -> None:
    error = stack.failure(failed("Error response from daemon: No such image: gymctl/x:1"))
    assert isinstance(error, EngineError)
    assert "gymctl/x:1" in error.what


def test_anything_else_shows_command_and_last_lines(stack: ComposeStack) -> None:
    error = stack.failure(failed("something odd"))
    assert isinstance(error, EngineError)
    assert "something odd" in str(error)
    assert "docker compose up" in str(error)
