"""A relay: a row goes to the agent as it came, and the agent's answer comes back as it is."""

from __future__ import annotations

import logging
import uuid

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.responses import FlatRow
from gymctl.servers import AgentRef, EnvironmentConfig, EnvironmentServer
from gymctl.transport import KEY_HEADER

logger = logging.getLogger("gymctl.server")

PER_CONNECTION = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "host",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to one connection; cookies are handed on explicitly."""
LIMITS = ("max_concurrent_episodes", "queue_timeout_seconds", "default_episode_timeout_seconds")


class LegacyAgentConfig(EnvironmentConfig):
    """The limits are accepted and have no effect: the agent owns its episodes."""

    agent_server: AgentRef
    default_episode_timeout_seconds: float | None = Field(default=21600, gt=0)
    cleanup_timeout_seconds: float = Field(default=180, gt=0)


class LegacyAgent(EnvironmentServer):
    config: LegacyAgentConfig
    takes = FlatRow

    async def startup(self) -> None:
        for name in LIMITS:
            if name in self.config.model_fields_set:
                logger.warning("`%s` has no effect on a relay; limit the agent instead", name)

    async def run(self, request: Request) -> Response:
        return await self._relay(request, "/run")

    async def aggregate_metrics(self, request: Request) -> Response:
        return await self._relay(request, "/aggregate_metrics")

    async def _relay(self, request: Request, path: str) -> Response:
        headers = {name: value for name, value in request.headers.items() if name not in PER_CONNECTION}
        answer = await self.client.call(
            self.config.agent_server,
            path,
            await request.body(),
            headers=headers,
            cookies=request.cookies,
            key=headers.get(KEY_HEADER) or f"relay-{uuid.uuid4().hex}",
        )
        if answer.is_error:
            logger.warning("%s: %s answered %d", path, self.config.agent_server.name, answer.status)
        response = Response(answer.body, answer.status)
        response.raw_headers += [
            (name.lower(), value)
            for name, value in answer.headers
            if name.lower().decode("latin-1") not in PER_CONNECTION
        ]
        return response


app = LegacyAgent.app()
