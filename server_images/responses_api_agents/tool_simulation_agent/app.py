"""An agent that asks the model once and has what it says, tool calls included, verified: no tool is run."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from pydantic import Field

from gymctl.contract.responses import presentable
from gymctl.servers import AgentConfig, AgentServer, ServerRef, Turn, ask, checked


class ToolSimulationAgentConfig(AgentConfig):
    model_server: ServerRef
    max_steps: int | None = Field(default=None, ge=1)
    """Changes nothing: the model is asked once. Configs of NeMo Gym say 1."""


class ToolSimulationAgent(AgentServer):
    """For verifiers that judge the call a model would make. No session is seeded and no cookie kept."""

    config: ToolSimulationAgentConfig
    plays_steps: ClassVar[bool] = False

    async def respond(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        return await ask(self.client, self.config.model_server, params, turn)

    async def run(self, row: dict[str, Any], params: dict[str, Any], cookies: dict[str, str]) -> Any:
        resources = self.resources_server("/run")
        turn = Turn(observed=self.observation())
        response = await self.responded(params, turn)
        scored = {**row, "response": {**response, "output": presentable(response["output"])}}
        if self.config.skip_verification:
            reward = float(self.config.skip_verification_reward)
            skipped = {**scored, "reward": reward, "verification_skipped": True}
            return self.with_trajectory(skipped, row, turn)
        verified = await self.client.call(resources, "/verify", scored, key=f"verify-{uuid.uuid4().hex}")
        return self.with_trajectory(checked(verified), row, turn)


app = ToolSimulationAgent.app()
