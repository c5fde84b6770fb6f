"""The loop of the OpenAI Agents SDK (package `openai-agents`), between our model server and our tools.

The worked example of bringing an agent library along: what the library sends to a model goes through
`ask`, what it does with tools through `AgentServer.call_tool`. So sessions, cookies, rollout prefix, retries
and failures are what they are for every agent, and the library reaches nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import Field

from gymctl.servers import AgentConfig, AgentServer, ServerRef, Turn, ask


class OpenAIAgentsConfig(AgentConfig):
    model_server: ServerRef
    max_turns: int | None = Field(default=10, ge=1)
    """Model calls per turn of the agent; null is unlimited."""


class OpenAIAgentsAgent(AgentServer):
    config: OpenAIAgentsConfig
    has_agent_sessions = True

    async def startup(self) -> None:
        # Three CPU seconds: not on import, where everybody who looks at this class would wait for them.
        import openai_agents_loop

        self._play = openai_agents_loop.play

    async def respond(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        return await self._play(
            params,
            ask=partial(ask, self.client, self.config.model_server, turn=turn),
            call_tool=partial(self.call_tool, turn=turn),
            max_turns=self.config.max_turns,
        )


app = OpenAIAgentsAgent.app()
