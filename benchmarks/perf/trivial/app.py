"""A resources server that does nothing, so that what it costs is the SDK."""

from __future__ import annotations

from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse, tool


class Trivial(ResourcesServer):
    @tool
    async def look_up(self, text: str) -> str:
        """Look a text up."""
        return text

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=1.0)


app = Trivial.app()
