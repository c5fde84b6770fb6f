"""CONTRACT 3: what every server does, whatever its kind."""

from __future__ import annotations

import pytest

LIVENESS = ("/", "/livez", "/readyz", "/healthz", "/health")
SERVERS = (
    "resources_url",
    "stateful_url",
    "agent_url",
    "environment_url",
    "native_environment_url",
    "model_url",
)


@pytest.mark.parametrize("server", SERVERS)
async def test_3_1_every_server_answers_its_liveness_routes(request, http, server):
    url = request.getfixturevalue(server)
    for path in LIVENESS:
        async with http.get(url + path) as answer:
            assert answer.status == 200
            assert answer.content_type == "application/json"
            assert await answer.json() == {"status": "ok"}
