"""The loop of the OpenAI Agents SDK (package `openai-agents`), between our model server and our tools.

The worked example of bringing an agent library along: what the library sends to a model goes through
`AgentServer.ask`, what it does with tools through `AgentServer.call_tool`. So sessions, cookies, rollout
prefix, retries and failures are what they are for every agent, and the library reaches nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx2
import orjson
from agents import Agent, FunctionTool, MaxTurnsExceeded, OpenAIResponsesModel, RunConfig, Runner
from agents.items import RunItem
from agents.run_config import ToolExecutionConfig
from agents.tool_context import ToolContext
from openai import AsyncOpenAI
from pydantic import Field

from gymctl.contract.responses import Usage
from gymctl.servers import AgentConfig, AgentServer, ServerRef, Turn

RUN_CONFIG = RunConfig(
    tracing_disabled=True,
    tool_not_found_behavior="return_error_to_model",
    tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1),
)


class OpenAIAgentsConfig(AgentConfig):
    model_server: ServerRef
    max_turns: int | None = Field(default=10, ge=1)
    """Model calls per turn of the agent; null is unlimited."""


class OpenAIAgentsAgent(AgentServer):
    config: OpenAIAgentsConfig
    has_agent_sessions = True

    async def respond(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        given = params["input"]
        calls = ModelCalls(self, params, turn)
        async with httpx2.AsyncClient(transport=calls, trust_env=False) as http:
            client = AsyncOpenAI(api_key="none", base_url="http://model", http_client=http, max_retries=0)
            model = OpenAIResponsesModel(model="policy", openai_client=client)
            agent = Agent(name=self.config.name, model=model, tools=self._tools(params, turn))
            try:
                result = await Runner.run(
                    agent, given, max_turns=self.config.max_turns, run_config=RUN_CONFIG
                )
                items = result.new_items
            except MaxTurnsExceeded as error:
                items = error.run_data.new_items if error.run_data else []
            except Exception:
                if calls.error is not None:  # the library words it as a lost connection
                    raise calls.error from None
                raise
        usage = None if calls.usage is None else calls.usage.model_dump()
        return {**calls.last, "output": [_plain(item) for item in items], "usage": usage}

    def _tools(self, params: dict[str, Any], turn: Turn) -> list[Any]:
        """The row's function tools; their arguments go to the resources server unread."""

        async def invoke(name: str, context: ToolContext[Any], arguments: str) -> str:
            return await self.call_tool(name, arguments, turn)

        return [
            FunctionTool(
                name=tool["name"],
                description=tool.get("description") or "",
                params_json_schema=tool.get("parameters") or {"type": "object"},
                on_invoke_tool=partial(invoke, tool["name"]),
                strict_json_schema=False,  # else the library rewrites the schema
            )
            for tool in params.get("tools") or ()
            if tool["type"] == "function"
        ]


class ModelCalls(httpx2.AsyncBaseTransport):
    """The HTTP transport of the library's client: its requests become calls of the model server.

    Of a request only the conversation counts: everything else is said by the row, as it stands there.
    """

    def __init__(self, server: OpenAIAgentsAgent, params: dict[str, Any], turn: Turn) -> None:
        self._server, self._params, self._turn = server, params, turn
        self.last: dict[str, Any] = {}
        self.usage: Usage | None = None
        self.error: Exception | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        conversation = orjson.loads(await request.aread())["input"]
        try:
            self.last = await self._server.ask(
                self._server.config.model_server, {**self._params, "input": conversation}, self._turn
            )
        except Exception as error:
            self.error = error
            raise
        used = Usage.of(self.last)
        self.usage = used if self.usage is None or used is None else self.usage + used
        return httpx2.Response(200, json={**self.last, "tools": [], "tool_choice": "auto"}, request=request)


def _plain(item: RunItem) -> dict[str, Any]:
    return dict(item.to_input_item())  # type: ignore[arg-type]


app = OpenAIAgentsAgent.app()
