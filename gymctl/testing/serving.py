"""One server inside the test's process, over real HTTP on a free port.

    async with serving(Weather) as weather:
        assert await weather.call("get_weather", city="Oslo") == {...}
        verdict = await weather.verify("It snows, -4 degrees.", city="Oslo")
        assert verdict["reward"] == 1.0

What is not under test is put behind it: `servers={"policy_model": model}` takes a `ScriptedModel`, another
`Served` or a URL, under the id that the server's settings name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from gymctl.config.checks.block_keys import generic_block
from gymctl.config.names import suggestion
from gymctl.contract.responses import JsonObject
from gymctl.contract.servers import ServerKind
from gymctl.errors import ConfigError
from gymctl.servers import AgentServer, EnvironmentServer, ModelServer, Server, inprocess
from gymctl.servers.inprocess import make_part
from gymctl.servers.load import built, imported
from gymctl.servers.stack.base import ServerApp
from gymctl.servers.stack.wire import dumps
from gymctl.testing.scripted import message
from gymctl.transport import Answer, Transport

_KINDS: dict[type[Server], ServerKind] = {
    AgentServer: "responses_api_agents",
    EnvironmentServer: "environment_servers",
    ModelServer: "responses_api_models",
}


class HasUrl(Protocol):
    @property
    def url(self) -> str: ...


class Session:
    """A caller of one server that keeps its cookies, as an agent does during one rollout.

    `post` and `get` hand back the answer, whatever its status. The other methods expect success, and fail
    the test with what the server said instead.
    """

    def __init__(self, url: str, transport: Transport) -> None:
        self.url = url
        self.cookies: dict[str, str] = {}
        self._transport = transport

    async def post(
        self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, key: str | None = None
    ) -> Answer:
        """POST `body` as JSON; bytes are sent as they are. `key`: an idempotency key."""
        sent = body if isinstance(body, bytes) else dumps({} if body is None else body)
        return await self._call("POST", path, sent, headers=headers, key=key)

    async def get(self, path: str) -> Answer:
        return await self._call("GET", path)

    async def _call(self, method: str, path: str, body: bytes | None = None, **more: Any) -> Answer:
        answer = await self._transport.call(
            method, f"{self.url}{path}", body, cookies=self.cookies, retry_seconds=0, **more
        )
        self.cookies.update(answer.cookies)
        return answer

    async def seed(self, **row: Any) -> JsonObject:
        """Begin the session with a row."""
        return await self._result("/seed_session", row)

    async def call(self, tool: str, **arguments: Any) -> Any:
        """What the tool says: parsed where it is JSON, else text."""
        return await self._result(f"/{tool}", arguments)

    async def verify(self, response: str | JsonObject, **row: Any) -> JsonObject:
        """The verdict on a response (a text is one that only says it) to a row with these fields."""
        said = {"output": [message(response)]} if isinstance(response, str) else response
        given = {"responses_create_params": {"input": ""}, **row, "response": said}
        return await self._result("/verify", given)

    async def respond(self, input: str | list[JsonObject], **params: Any) -> JsonObject:
        """One turn of an agent, or one answer of a model."""
        return await self._result("/v1/responses", {"input": input, **params})

    async def run(self, **row: Any) -> JsonObject:
        """A whole rollout, from an agent or an environment server."""
        return await self._result("/run", row)

    async def _result(self, path: str, body: JsonObject) -> Any:
        answer = await self.post(path, body)
        if answer.is_error:
            text = answer.body.decode("utf-8", "replace")
            raise AssertionError(f"POST {path} was answered with {answer.status}: {text}")
        is_json = (answer.header("content-type") or "").startswith("application/json")
        return answer.json() if is_json else answer.body.decode()


class Served(Session):
    """A server that is being served, and the first session with it."""

    def __init__(self, url: str, transport: Transport, server: Server) -> None:
        super().__init__(url, transport)
        self.server = server
        """The instance, for a look inside."""

    def session(self) -> Session:
        """Another session."""
        return Session(self.url, self._transport)


@asynccontextmanager
async def serving(
    server: type[Server] | ServerApp | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    servers: Mapping[str, str | HasUrl] | None = None,
) -> AsyncIterator[Served]:
    """Serve a class, the `app` of an app.py, or a server's folder, for as long as the block lasts.

    settings: the server's block. name: its id, by default the class's or folder's. Raises ConfigError for
    settings that do not fit, ServerError for a server that does not start.
    """
    app = imported("app.py", server) if isinstance(server, Path) else server
    app = app if isinstance(app, ServerApp) else ServerApp(app)
    _refuse_unknown(settings or {}, app.server_class)
    implementation = server.name if isinstance(server, Path) else app.server_class.__name__.lower()
    part = make_part(
        name or implementation,
        _kind(app.server_class),
        implementation,
        settings,
        {other: where if isinstance(where, str) else where.url for other, where in (servers or {}).items()},
    )
    made = built(app, part)
    async with inprocess.serving(made) as url, Transport() as transport:
        yield Served(url, transport, made.state.server)


def _refuse_unknown(settings: Mapping[str, Any], server_class: type[Server]) -> None:
    """As a project would: the server itself ignores a key that it does not know."""
    fields = server_class.config_class().model_fields
    known = {*generic_block(_kind(server_class)).model_fields, *(f.alias or key for key, f in fields.items())}
    for key in settings:
        if key not in known:
            raise ConfigError(
                f"`{server_class.__name__}` does not know `{key}`", hint=suggestion(key, sorted(known))
            )


def _kind(server_class: type[Server]) -> ServerKind:
    for base, kind in _KINDS.items():
        if issubclass(server_class, base):
            return kind
    return "resources_servers"
