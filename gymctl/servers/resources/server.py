"""Resources servers: the tools of an environment and the verifier that scores what was done with them.

POST /seed_session   a session begins: typed (environment server) or the flat row (agent)
POST /<tool>         one per `@tool` method
POST /verify         row + response in, reward out
POST /close_session  its state is released
POST /mcp            the tools once more, over MCP, if the block says `expose_tools_over_mcp: true`
POST /aggregate_metrics, GET /reverify_mode, GET /openapi.json (the tools only)
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gymctl.contract.episodes import (
    ResourcesClose,
    ResourcesCloseResponse,
    ResourcesSeed,
    ResourcesSeedResponse,
)
from gymctl.contract.failures import is_failure_kind
from gymctl.contract.part import ServerPart
from gymctl.errors import ConfigError
from gymctl.servers.resources.config import JudgeConfig
from gymctl.servers.resources.handlers import Signature, Tool, tools_of
from gymctl.servers.resources.judge import Judge, JudgeFailed, failed_verdict, judge_failure
from gymctl.servers.resources.session_server import SessionServer
from gymctl.servers.resources.typed_sessions import ResourcesSessions, Turns
from gymctl.servers.resources.verdicts import VerifyRequest
from gymctl.servers.stack.params import completed
from gymctl.servers.stack.recent import Recent
from gymctl.servers.stack.session import SessionCookie
from gymctl.servers.stack.wire import Json, json_object, validated
from gymctl.transport import KEY_HEADER

if TYPE_CHECKING:
    from gymctl.servers.resources.mcp_tools import McpTools

logger = logging.getLogger("gymctl.server")

TAKEN = frozenset({"seed_session", "close_session", "aggregate_metrics", "mcp"})
"""Names that a tool may not have, beside those of the methods below."""
REMEMBERED_SEEDS = 8192
"""Flat seeds whose `Idempotency-Key` is known, at most."""
TOLD_KINDS = 100
"""Unknown failure kinds that are warned about, at most."""


class ResourcesServer(SessionServer):
    """Write the tools as `@tool` methods and one `verify`; `seed` only if a session starts from its row."""

    reverify_mode: ClassVar[Literal["stateless", "unsupported", "unknown"]] = "unknown"
    """`stateless`: `verify` needs nothing but its body, so saved rollouts can be scored again."""

    def __init__(self, part: ServerPart) -> None:
        self.tools = tools_of(type(self))
        self._seed_signature = Signature.of(type(self).seed)
        self._verify_signature = Signature.of(type(self).verify)
        self._verify_model = _verify_model(self._verify_signature)
        self._seed_model = row_model(self._seed_signature)
        signatures = [*(tool.signature for tool in self.tools), self._seed_signature, self._verify_signature]
        self._is_stateful = any(signature.states for signature in signatures)
        self._typed_sessions = ResourcesSessions()
        self._flat_seeds = Turns()
        self._seeds_by_key: Recent[str, tuple[dict[str, Any], Response]] = Recent(REMEMBERED_SEEDS)
        self._mcp: McpTools | None = None
        self._told_kinds: set[str] = set()
        super().__init__(part)
        self._refuse_taken_names()

    @property
    def is_stateful(self) -> bool:
        return self._is_stateful

    @cached_property
    def judge(self) -> Judge:
        """The model that `verify` may ask; the server's config must extend JudgeConfig."""
        if not isinstance(self.config, JudgeConfig):
            raise TypeError(f"{type(self).__name__}.config must extend JudgeConfig to have a judge")
        return Judge(self.client, self.config)

    def seed(self, *args: Any, **kwargs: Any) -> Any:
        """Prepare a session. Override as `seed(self, row: MyRow, state: MyState)`, either or both."""

    def verify(self, *args: Any, **kwargs: Any) -> Any:
        """Score a response. Override as `verify(self, request: VerifyRequest)`, plus states you need.

        Must not fail when the caller never seeded a session: state is then as new.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `verify`")

    def offered_tools(self, row: dict[str, Any]) -> Collection[str] | None:
        """The tools that a session may use over MCP, by the row that it is seeded with; None for all."""
        return None

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(
            app,
            "/seed_session",
            self._seed_session,
            takes=ResourcesSeed | (self._seed_model or dict[str, Any]),
        )
        self.post(app, "/close_session", self._close_session, takes=ResourcesClose)
        self.post(app, "/verify", self._verify, takes=self._verify_model, is_once_per_key=True)
        self.get(app, "/reverify_mode", self._reverify_mode)
        for tool in self.tools:
            endpoint = self._endpoint(tool)
            self.post(app, f"/{tool.name}", endpoint, takes=tool.arguments, is_once_per_key=True)

    def routed(self, app: Starlette) -> None:
        """Put `/mcp` before all other routes, if the block asks for it."""
        super().routed(app)
        if not self.config.expose_tools_over_mcp:
            return
        from gymctl.servers.resources import mcp_tools  # heavy: 0.7 CPU seconds

        mcp_tools.refuse_taken_path(app.router.routes, self.part.name)
        cookie = SessionCookie(self.label, self.part.session_secret)
        tokens = mcp_tools.Tokens(self.label, self.part.session_secret)
        self._mcp = mcp_tools.McpTools(app, app.router.routes, self.tools, self.part.name, cookie, tokens)
        app.router.routes[:0] = self._mcp.routes

    def _refuse_taken_names(self) -> None:
        """A tool under the name of a route or of a method of ours would take its place without a word."""
        for tool in self.tools:
            if tool.name in TAKEN or hasattr(ResourcesServer, tool.name):
                raise ConfigError(
                    f"{type(self).__name__} has a tool `{tool.name}`: a name of every resources server",
                    where=self.part.name,
                    hint="give the method another name; datasets and models call the tool by it",
                )

    def _endpoint(self, tool: Tool) -> Any:
        method = getattr(self, tool.name)

        async def call(request: Request) -> Response:
            arguments = validated(tool.arguments, await json_object(request))
            states = tool.signature.state_of(self.sessions, request.session["session_id"])
            result = await self._threads.call(method, **tool.keywords(arguments), **states)
            return PlainTextResponse(result) if isinstance(result, str) else Json(result)

        return call

    # Sessions

    async def _seed_session(self, request: Request) -> Response:
        body = await json_object(request)
        if "resources_session_id" not in body or "responses_create_params" in body:
            return await self._seed_flat(body, request)
        seed = validated(ResourcesSeed, body)
        session_id = request.session["session_id"] = seed.resources_session_id
        key = request.headers.get(KEY_HEADER)
        await self._typed_sessions.seed(seed, lambda: self._seeded_once(key, session_id, seed.task_data))
        offer = self._mcp_offer(session_id, seed.task_data)
        return Json(ResourcesSeedResponse(resources_session_id=session_id, resources_tools=offer))

    async def _seed_flat(self, row: dict[str, Any], request: Request) -> Response:
        """A second seed starts the session anew. A repeat with the same `Idempotency-Key` joins the session
        of the first, whose cookie its caller may have missed."""
        key = request.headers.get(KEY_HEADER)
        async with self._flat_seeds.of(request.session["session_id"] if key is None else f"key {key}"):
            earlier = None if key is None else self._seeds_by_key.get(key)
            if earlier is not None:
                request.session.update(earlier[0])
                return earlier[1]
            session_id: str = request.session["session_id"]
            await self._seeded_once(key, session_id, row)
            offer = self._mcp_offer(session_id, row)
            answer = Json(b"{}" if offer is None else {"mcp": offer})
            if key is not None:
                self._seeds_by_key.put(key, (dict(request.session), answer))
            return answer

    async def _seeded_once(self, key: str | None, session_id: str, row: dict[str, Any]) -> None:
        """With a key the author's `seed` outlives a connection that breaks meanwhile; the repeat joins it."""
        if key is None:
            return await self._seeded(session_id, row)

        async def seeded() -> Response:
            await self._seeded(session_id, row)
            return Response()

        await self.answers.once(f"/seed_session\n{key}", seeded)
        return None

    async def _seeded(self, session_id: str, row: dict[str, Any]) -> None:
        """Take the session's place and let the author prepare it; a place that nobody uses is given back."""
        values: dict[str, Any] = {}
        if self._seed_model is not None:
            name = next(iter(self._seed_signature.own))
            values[name] = validated(self._seed_model, without_absent(self._seed_model, row))
        if self.is_stateful:
            await self.sessions.begin(session_id)
        logger.info("session %s begins", session_id)
        if type(self).seed is ResourcesServer.seed:
            return
        try:
            values |= self._seed_signature.state_of(self.sessions, session_id)
            await self._threads.call(self.seed, **values)
        except BaseException:
            await self.sessions.forget(session_id)
            raise

    def _mcp_offer(self, session_id: str, row: dict[str, Any]) -> dict[str, Any] | None:
        return None if self._mcp is None else self._mcp.offer(session_id, self.offered_tools(row))

    async def _close_session(self, request: Request) -> Response:
        close = validated(ResourcesClose, await json_object(request))
        session_id = close.resources_session_id
        await self._typed_sessions.close(session_id, lambda: self._released(session_id))
        if self.label in request.cookies:  # a session seeded by a flat row has no other name
            await self._released(request.session["session_id"])
        return Json(ResourcesCloseResponse(resources_session_id=session_id))

    async def _released(self, session_id: str) -> None:
        if self.is_stateful:
            await self.sessions.close(session_id)

    # Verdicts

    async def _verify(self, request: Request) -> Response:
        body = await json_object(request)
        question = validated(self._verify_model, without_absent(self._verify_model, body))
        question.responses_create_params = completed(question.responses_create_params)
        session_id: str = request.session["session_id"]
        states = self._verify_signature.state_of(self.sessions, session_id)
        emitted = question.response
        if self._mcp is not None:
            question.response = self._mcp.renamed(emitted)
        try:
            verdict = self._verdict(await self._threads.call(self.verify, question, **states))
        except (JudgeFailed, ExceptionGroup) as error:
            failure = judge_failure(error)
            if failure is None:
                raise
            logger.warning("/verify: %s", failure)
            verdict = failed_verdict(question, body, failure)
        finally:
            self.sessions.scored(session_id)
        if question.response is not emitted:
            verdict["response"] = emitted
        self._tell_unknown(verdict["failure_kind"])
        return Json(verdict)

    def _verdict(self, returned: object) -> dict[str, Any]:
        if not isinstance(returned, BaseModel):
            raise TypeError(
                f"{type(self).__name__}.verify returned a {type(returned).__name__}, not a VerifyResponse; "
                "`request.scored(reward=…)` makes one"
            )
        return dict(returned)

    def _tell_unknown(self, kind: str | None) -> None:
        if kind is None or is_failure_kind(kind) or kind in self._told_kinds:
            return
        if len(self._told_kinds) < TOLD_KINDS:
            self._told_kinds.add(kind)
            logger.warning("`failure_kind` %r is not known; name one of your own as `<server>:<kind>`", kind)

    async def _reverify_mode(self, request: Request) -> Response:
        return Json(self.reverify_mode)

    def openapi(self) -> dict[str, Any]:
        """Only tools: clients offer every POST route of this schema to the model."""
        return {
            **super().openapi(),
            "paths": {f"/{tool.name}": {"post": _operation(tool)} for tool in self.tools},
        }


def row_model(signature: Signature) -> type[BaseModel] | None:
    """The model a `seed` or `verify` wants of its row: the type of its first parameter of its own."""
    for name in signature.own:
        hint = signature.hints.get(name)
        if not (isinstance(hint, type) and issubclass(hint, BaseModel)):
            raise TypeError(f"parameter `{name}` must be annotated with a pydantic model, got {hint!r}")
        return hint
    return None


def without_absent(model: type[BaseModel], row: dict[str, Any]) -> dict[str, Any]:
    """Null is absent where the model has a default: tables give every row every column."""
    absent = [
        name
        for name, field in model.model_fields.items()
        if not field.is_required() and row.get(name, name) is None
    ]
    return {name: value for name, value in row.items() if name not in absent} if absent else row


def _verify_model(signature: Signature) -> type[VerifyRequest]:
    model = row_model(signature) or VerifyRequest
    if not issubclass(model, VerifyRequest):
        raise TypeError(f"`verify` takes a {model.__name__}, which must extend VerifyRequest")
    return model


def _operation(tool: Tool) -> dict[str, Any]:
    return {
        "operationId": tool.name,
        "summary": tool.name,
        "description": tool.description,
        "requestBody": {"required": True, "content": {"application/json": {"schema": tool.parameters}}},
        "responses": {"200": {"description": "The tool's output."}},
    }
