"""`@tool`: what a signature says about arguments, schema and state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from gymctl.errors import ConfigError
from gymctl.servers import ResourcesServer, SessionState, tool
from gymctl.servers.inprocess import make_part
from gymctl.servers.resources.handlers import Tool, tools_of
from gymctl.servers.resources.state import SessionStore


@dataclass
class Board(SessionState):
    moves: int = 0


class Square(BaseModel):
    title: str
    row: int


class Chess(ResourcesServer):
    @tool
    async def move(
        self,
        square: Square,
        board: Board,
        copy: Annotated[str, Field(description="A name that models may not have.")] = "x",
        times: int = 1,
    ) -> str:
        """Move a piece."""
        return ""

    @tool
    async def resign(self) -> None: ...


class FasterChess(Chess):
    @tool
    async def blitz(self, seconds: float) -> str:
        return ""


def named(server: type, name: str) -> Tool:
    return next(tool for tool in tools_of(server) if tool.name == name)


def test_schema_describes_the_callers_arguments_only():
    function = named(Chess, "move").as_function()
    assert (function["type"], function["name"], function["description"]) == (
        "function",
        "move",
        "Move a piece.",
    )
    parameters = function["parameters"]
    assert parameters["required"] == ["square"]
    assert parameters["properties"]["copy"] == {
        "default": "x",
        "description": "A name that models may not have.",
        "type": "string",
    }
    assert parameters["properties"]["times"] == {"default": 1, "type": "integer"}
    assert "board" not in parameters["properties"]
    assert parameters["$defs"]["Square"]["properties"]["title"] == {"type": "string"}


def test_a_tool_without_arguments_has_an_empty_schema():
    assert named(Chess, "resign").parameters == {"properties": {}, "type": "object"}


def test_arguments_are_parsed_and_unknown_ones_ignored():
    move = named(Chess, "move")
    arguments = move.arguments.model_validate(
        {"square": {"title": "e4", "row": 4}, "session_id": "z", "times": "2"}
    )
    assert move.keywords(arguments) == {"square": Square(title="e4", row=4), "copy": "x", "times": 2}


def test_state_is_the_sessions_object():
    sessions = SessionStore(maximum=9, idle_seconds=9)
    first = named(Chess, "move").signature.state_of(sessions, "a")
    assert first == {"board": sessions.get("a", Board)}
    assert first["board"] is not sessions.get("b", Board)


def test_subclasses_inherit_tools():
    assert [entry.name for entry in tools_of(FasterChess)] == ["move", "resign", "blitz"]


def test_state_and_several_workers_do_not_go_together():
    from gymctl.errors import ConfigError

    part = make_part("chess", "resources_servers", "chess").model_copy(update={"workers": 2})
    with pytest.raises(ConfigError, match="`num_workers`: 2"):
        Chess(part)


@pytest.mark.parametrize("name", ["seed_session", "close_session", "aggregate_metrics", "mcp", "openapi"])
def test_a_tool_may_not_take_the_name_of_a_route_or_method_of_ours(name):
    async def call(self) -> str:
        return "mine"

    call.__name__ = name
    server = type("Impostor", (ResourcesServer,), {name: tool(call)})
    with pytest.raises(ConfigError, match=f"Impostor has a tool `{name}`"):
        server(make_part("impostor", "resources_servers", "impostor"))
