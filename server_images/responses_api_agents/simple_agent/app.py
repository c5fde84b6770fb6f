"""An agent that asks the model, runs the tools it calls, and asks again, until it answers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gymctl.contract.responses import Usage, function_calls
from gymctl.servers import AgentConfig, AgentServer, ServerRef, Turn, ask, conversation_of

MESSAGES = {
    "incomplete_reasoning": "The model ended its turn with reasoning only: no message and no tool call.",
    "empty_output": "The model ended its turn without a message and without a tool call.",
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
            "output": await self.call_tool(call["name"], call.get("arguments") or "", turn),
            "id": None,
            "status": None,
        }


def _is_finished(response: dict[str, Any], calls: list[dict[str, Any]]) -> bool:
    """Whether the turn ends here; one that ends with nothing to show for it is marked as incomplete."""
    if response.get("incomplete_details"):
        return True
    if calls:
        return False
    output = response["output"]
    if not any(item.get("type") == "message" for item in output):
        has_thought = any(item.get("type") == "reasoning" for item in output)
        reason = "incomplete_reasoning" if has_thought else "empty_output"
        marks = {"ng_termination_reason": reason, "ng_termination_message": MESSAGES[reason]}
        response["status"] = "incomplete"
        response["metadata"] = {**(response.get("metadata") or {}), **marks}
    return True


app = SimpleAgent.app()
