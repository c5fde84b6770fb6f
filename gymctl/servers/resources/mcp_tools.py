"""A server's tools over the Model Context Protocol, at `/mcp` (CONTRACT 5.6).

    initialize, tools/list, tools/call     JSON-RPC in one POST each, answered as JSON; nothing is kept

Every POST route of the server that a client could call as a tool is one. A call goes through the server's own
app, in this process, as `POST /<tool>` with the cookie of the session that its token names: what holds for a
tool over HTTP holds here. The token comes with the seed, as a header for the MCP client to send.

This module imports the `mcp` package (0.7 CPU seconds); only servers that expose their tools load it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Iterable
from typing import Any

import mcp.types as types
from itsdangerous import BadSignature, URLSafeSerializer
from mcp.server.lowlevel import Server as McpServer
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gymctl.errors import ConfigError
from gymctl.servers.resources.handlers import Tool
from gymctl.servers.stack.session import SessionCookie
from gymctl.servers.stack.wire import dumps, loads

logger = logging.getLogger("gymctl.server")

PATH = "/mcp"
TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
NOT_TOOLS = frozenset({"verify", "seed_session", "close_session", "aggregate_metrics", "mcp"})

_SALT = "nemo-gym-mcp-session-token"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_OPEN_SCHEMA: dict[str, Any] = {"type": "object", "additionalProperties": True}
_ANY_HOST = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class NoSession(Exception):
    """The request names no session of this server."""


class Tokens:
    """Session id and tool filter of an MCP client, signed."""

    def __init__(self, server: str, secret: str) -> None:
        # The server's name is in the key: all servers of a project share one secret.
        self._serializer = URLSafeSerializer(f"{server}:{secret}", salt=_SALT)

    def token(self, session_id: str, tools: Collection[str] | None) -> str:
        names = None if tools is None else list(tools)
        return str(self._serializer.dumps({"sid": session_id, "tools": names}))

    def read(self, token: str) -> tuple[str, list[str] | None]:
        """The session id, and the names the session may use (None: all). Raises NoSession."""
        try:
            payload = self._serializer.loads(token)
            session_id, names = payload["sid"], payload["tools"]
        except (BadSignature, KeyError, TypeError) as error:
            raise NoSession(f"the {TOKEN_HEADER} is not valid; seed a session and send its token") from error
        return session_id, names


class McpTools:
    """The MCP face of one server. `routes` go before all others of `app`."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Iterable[BaseRoute],
        tools: Iterable[Tool],
        name: str,
        cookie: SessionCookie,
        tokens: Tokens,
    ) -> None:
        self._app = app
        self._name = name
        self._cookie = cookie
        self._tokens = tokens
        self.tools = {tool.name: tool for tool in _listed(routes, tools)}
        self._server: McpServer[Any, Any] = McpServer(name)
        self._server.request_handlers[types.ListToolsRequest] = self._list
        self._server.request_handlers[types.CallToolRequest] = self._call
        self.routes = [Route(path, self, methods=["POST"]) for path in (PATH, PATH + "/{rest:path}")]

    def offer(self, session_id: str, names: Collection[str] | None) -> dict[str, Any]:
        """What a seed answers: where the tools are, and what a client must send to use them."""
        return {
            "server_name": self._name,
            "url_path": PATH,
            "transport": "http",
            "headers": {TOKEN_HEADER: self._tokens.token(session_id, names)},
        }

    def renamed(self, response: dict[str, Any]) -> dict[str, Any]:
        """See `renamed` below."""
        return renamed(response, self._name, self.tools)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One message. Its tasks end with it: a caller that leaves ends the tool it has called."""
        body = await Request(scope, receive).body()
        if _is_notification(body):  # of a session that is not kept
            await Response(status_code=202)(scope, receive, send)
            return
        transport = StreamableHTTPServerTransport(
            mcp_session_id=None, is_json_response_enabled=True, security_settings=_ANY_HOST
        )
        options = self._server.create_initialization_options()
        async with transport.connect() as (incoming, outgoing):
            serving = asyncio.create_task(self._server.run(incoming, outgoing, options, stateless=True))
            try:
                await transport.handle_request(scope, _Exchange(body).receive, send)
            finally:
                serving.cancel()
                await asyncio.wait([serving])
        if not serving.cancelled() and (failure := serving.exception()) is not None:
            logger.error("/mcp failed", exc_info=failure)

    async def _list(self, request: types.ListToolsRequest) -> types.ServerResult:
        token = self._token()
        _, allowed = (None, None) if token is None else self._tokens.read(token)
        return types.ServerResult(types.ListToolsResult(tools=self._allowed(allowed)))

    async def _call(self, request: types.CallToolRequest) -> types.ServerResult:
        name, arguments = request.params.name, request.params.arguments or {}
        try:
            token = self._token()
            if token is None:
                raise NoSession(f"a call needs the {TOKEN_HEADER} that came with the seed")
            session_id, allowed = self._tokens.read(token)
        except NoSession as error:
            return _result(str(error), is_error=True)
        known = [tool.name for tool in self._allowed(allowed)]
        if name not in known:
            return _result(f"unknown tool `{name}`; there are: {', '.join(known) or 'none'}", is_error=True)
        status, body = await self._post(f"/{name}", dumps(arguments), session_id)
        if status >= 400:
            return _result(f"HTTP {status} from POST /{name}: {_detail(body)}", is_error=True)
        return _result(body.decode("utf-8", "replace"), is_error=False)

    def _token(self) -> str | None:
        request = self._server.request_context.request
        return None if request is None else request.headers.get(TOKEN_HEADER)

    def _allowed(self, names: Collection[str] | None) -> list[types.Tool]:
        return [tool for tool in self.tools.values() if names is None or tool.name in names]

    async def _post(self, path: str, body: bytes, session_id: str) -> tuple[int, bytes]:
        """Call a route of our own app as a caller with this session would."""
        cookie = b"%s=%s" % (
            self._cookie.name.encode("latin-1"),
            self._cookie.value({"session_id": session_id}),
        )
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"cookie", cookie)],
            "client": None,
            "server": None,
        }
        exchange = _Exchange(body)
        await self._app(scope, exchange.receive, exchange.send)
        return exchange.status, b"".join(exchange.parts)


class _Exchange:
    """The two ends of an ASGI call that no connection stands behind."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.status = 500
        self.parts: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()  # this caller never leaves; it cancels
        message: Message = {"type": "http.request", "body": self._body, "more_body": False}
        self._body = None
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.append(message.get("body", b""))


def _listed(routes: Iterable[BaseRoute], tools: Iterable[Tool]) -> list[types.Tool]:
    described = {tool.name: tool for tool in tools}
    listed: dict[str, types.Tool] = {}
    for route in routes:
        name = _tool_name(route)
        if name is None:
            continue
        tool = described.get(name)
        schema = _OPEN_SCHEMA if tool is None else tool.parameters
        description = None if tool is None else tool.description
        listed.setdefault(name, types.Tool(name=name, description=description, inputSchema=schema))
    return list(listed.values())


def _tool_name(route: BaseRoute) -> str | None:
    if not isinstance(route, Route) or "POST" not in (route.methods or ()) or route.param_convertors:
        return None
    name = route.path.removeprefix("/")
    return name if name not in NOT_TOOLS and _NAME.fullmatch(name) else None


def refuse_taken_path(routes: Iterable[BaseRoute], server: str) -> None:
    """Raise when the server serves `/mcp` itself."""
    taken = [
        path for path in (getattr(route, "path", "") for route in routes) if f"{path}/".startswith(f"{PATH}/")
    ]
    if taken:
        raise ConfigError(
            f"`expose_tools_over_mcp`: the server already serves `{taken[0]}`",
            where=server,
            hint="set it to false, or serve your own route elsewhere",
        )


def renamed(response: dict[str, Any], server: str, names: Collection[str]) -> dict[str, Any]:
    """The response with its calls under the tools' own names: `mcp__<server>__get_weather` is `get_weather`.

    The same object when there is nothing to rename; the argument is never changed.
    """
    prefix = f"mcp__{server}__"

    def own(item: dict[str, Any]) -> dict[str, Any]:
        name = item.get("name")
        if item.get("type") != "function_call" or not isinstance(name, str) or not name.startswith(prefix):
            return item
        bare = name.removeprefix(prefix)
        return {**item, "name": bare} if bare in names else item

    emitted: list[dict[str, Any]] = response.get("output") or []
    output = [own(item) for item in emitted]
    changed = any(item is not before for item, before in zip(output, emitted, strict=True))
    return {**response, "output": output} if changed else response


def _is_notification(body: bytes) -> bool:
    try:
        message = loads(body)
    except ValueError:
        return False
    return isinstance(message, dict) and "method" in message and "id" not in message


def _result(text: str, *, is_error: bool) -> types.ServerResult:
    content: list[Any] = [types.TextContent(type="text", text=text)]
    return types.ServerResult(types.CallToolResult(content=content, isError=is_error))


def _detail(body: bytes) -> str:
    """What an error body says: the `detail` of ours, a JSON string, or the text as it is."""
    try:
        value = loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
    if isinstance(value, dict) and "detail" in value:
        value = value["detail"]
    return value if isinstance(value, str) else dumps(value).decode()
