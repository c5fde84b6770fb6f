"""One run of the library: what it is given, and what becomes of its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx2
import orjson
from agents import Agent, FunctionTool, MaxTurnsExceeded, OpenAIResponsesModel, RunConfig, Runner
from agents.run_config import ToolExecutionConfig
from agents.tool_context import ToolContext
from openai import AsyncOpenAI

from gymctl.contract.responses import Usage

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
CallTool = Callable[[str, str], Awaitable[str]]

RUN_CONFIG = RunConfig(
    tracing_disabled=True,
    tool_not_found_behavior="return_error_to_model",
    tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1),
)


async def play(
    params: dict[str, Any], *, ask: Ask, call_tool: CallTool, max_turns: int | None
) -> dict[str, Any]:
    """The Response of one turn: every item that the library added to the conversation."""
    calls = ModelCalls(params, ask)
    async with httpx2.AsyncClient(transport=calls, trust_env=False) as http:
        client = AsyncOpenAI(api_key="none", base_url="http://model", http_client=http, max_retries=0)
        model = OpenAIResponsesModel(model="policy", openai_client=client)
        agent = Agent(name="policy", model=model, tools=tools(params, call_tool))
        try:
            result = await Runner.run(agent, params["input"], max_turns=max_turns, run_config=RUN_CONFIG)
            items = result.new_items
        except MaxTurnsExceeded as error:
            items = error.run_data.new_items if error.run_data else []
        except Exception:
            if calls.error is not None:  # the library words it as a lost connection
                raise calls.error from None
            raise
    usage = None if calls.usage is None else calls.usage.model_dump()
    return {**calls.last, "output": [dict(item.to_input_item()) for item in items], "usage": usage}


def tools(params: dict[str, Any], call_tool: CallTool) -> list[Any]:
    """The row's function tools; their arguments go to the resources server unread."""

    async def invoke(name: str, context: ToolContext[Any], arguments: str) -> str:
        return await call_tool(name, arguments)

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

    def __init__(self, params: dict[str, Any], ask: Ask) -> None:
        self._params, self._ask = params, ask
        self.last: dict[str, Any] = {}
        self.usage: Usage | None = None
        self.error: Exception | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        conversation = orjson.loads(await request.aread())["input"]
        try:
            self.last = await self._ask({**self._params, "input": conversation})
        except Exception as error:
            self.error = error
            raise
        used = Usage.of(self.last)
        self.usage = used if self.usage is None or used is None else self.usage + used
        # The library reads a Response of the newest kind; what it needs of it is filled in.
        return httpx2.Response(200, json={**self.last, "tools": [], "tool_choice": "auto"}, request=request)
