"""An agent that asks the model, runs the tools it calls, and asks again, until it answers."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote

from pydantic import Field

from gymctl.contract.responses import Usage, function_calls
from gymctl.servers import (
    AgentConfig,
    AgentServer,
    AgentSession,
    ServerRef,
    ToolAccess,
    Turn,
    ask,
    conversation_of,
    direct_access,
)

NO_TOOLS = frozenset({"seed_session", "verify", "close_session", "aggregate_metrics"})
"""Routes of a resources server that a model must not reach by calling a tool of that name."""

MESSAGES = {
    "incomplete_reasoning": "The model ended its turn with reasoning only: no message and no tool call.",
    "empty_output": "The model ended its turn without any output.",
}


class SimpleAgentConfig(AgentConfig):
    model_server: ServerRef
    max_steps: int | None = Field(default=None, ge=1)
    """Model calls per turn; null is unlimited."""
    execute_tools: bool = True


class SimpleAgent(AgentServer):
    """Tools run one after the other; whatever a tool server says, its text is the tool's output."""

    config: SimpleAgentConfig
    has_agent_sessions = True

    async def open_session(self, session: AgentSession, accesses: list[ToolAccess]) -> None:
        if session.seed.sandbox_access is not None:
            raise ValueError("this agent cannot use a sandbox")
        session.tools = direct_access(accesses)
        session.cookies = None if session.tools is None else dict(session.tools.cookies)

    async def respond(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        if not self.config.execute_tools and not turn.is_in_session:
            raise ValueError("with `execute_tools: false` the caller runs the tools, which needs a session")
        conversation = conversation_of(params)
        produced: list[dict[str, Any]] = []
        usages: list[Usage | None] = []
        steps = 0
        while True:
            asked = {**params, "input": conversation + produced}
            response = await ask(self.client, self.config.model_server, asked, turn)
            steps += 1
            usages.append(Usage.of(response))
            produced += response["output"]
            calls = function_calls(response)
            if _is_finished(response, calls) or not self.config.execute_tools:
                break
            for call in calls:
                produced.append(await self._run_tool(call, turn))
            if self.config.max_steps is not None and steps >= self.config.max_steps:
                break
        usage = Usage.total(usages)
        return {**response, "output": produced, "usage": None if usage is None else usage.model_dump()}

    async def _run_tool(self, call: dict[str, Any], turn: Turn) -> dict[str, Any]:
        return {
            "type": "function_call_output",
            "call_id": call["call_id"],
            "output": await self._output(call["name"], call.get("arguments") or "", turn),
            "id": None,
            "status": None,
        }

    async def _output(self, name: str, arguments: str, turn: Turn) -> str:
        try:
            json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return json.dumps({"error": f"Invalid tool call arguments: {error}"})
        if name.rpartition("/")[2] in NO_TOOLS:  # also behind a rollout prefix
            return '{"detail":"Not Found"}'
        if turn.tools_url is None:
            raise ValueError(f"the model called `{name}`, but this turn has no tools")
        answer = await self.client.call_url(
            f"{turn.tools_url}/{quote(name, safe='')}",
            arguments.encode("utf-8", "surrogatepass"),
            cookies=turn.resources_cookies,
            headers=turn.tools_headers,
            key=f"tool-{uuid.uuid4().hex}",
        )
        turn.resources_cookies.update(answer.cookies)
        return answer.body.decode("utf-8", "replace")


def _is_finished(response: dict[str, Any], calls: list[dict[str, Any]]) -> bool:
    """Whether the turn ends here; one that ends with nothing to show for it is marked as incomplete."""
    if response.get("incomplete_details"):
        return True
    if calls:
        return False
    output = response["output"]
    if not any(item.get("type") == "message" for item in output):
        reason = "incomplete_reasoning" if output else "empty_output"
        marks = {"ng_termination_reason": reason, "ng_termination_message": MESSAGES[reason]}
        response["status"] = "incomplete"
        response["metadata"] = {**(response.get("metadata") or {}), **marks}
    return True


app = SimpleAgent.app()
