"""Resources servers: the tools of an environment and the verifier that scores what was done with them.

POST /seed_session   a session begins: typed (environment server) or the flat row (agent)
POST /<tool>         one per `@tool` method
POST /verify         row + response in, reward out
POST /close_session  its state is released
POST /aggregate_metrics, GET /reverify_mode, GET /openapi.json (the tools only)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gymctl.contract.aggregate import AggregateRequest
from gymctl.contract.episodes import (
    ResourcesClose,
    ResourcesCloseResponse,
    ResourcesSeed,
    ResourcesSeedResponse,
)
from gymctl.contract.part import ServerPart
from gymctl.contract.responses import output_text
from gymctl.errors import ConfigError
from gymctl.metrics.aggregate import aggregate
from gymctl.servers.base import Server, ServerConfig
from gymctl.servers.handlers import Signature, Tool, tools_of
from gymctl.servers.params import completed
from gymctl.servers.prefix import PrefixRule
from gymctl.servers.resources_sessions import ResourcesSessions
from gymctl.servers.state import SessionStore
from gymctl.servers.wire import Json, json_object, validated

V = TypeVar("V", bound="VerifyResponse")

SWEEP_SECONDS = 30.0


class ResourcesConfig(ServerConfig):
    """Block of a resources server."""

    domain: str | None = None
    max_sessions: int = Field(default=131072, ge=1)
    session_idle_seconds: float = Field(default=21600, gt=0)
    """As long as an episode may last: a slow model must not lose its session."""
    expose_tools_over_mcp: bool = False

    @field_validator("expose_tools_over_mcp")
    @classmethod
    def _is_not_there_yet(cls, is_asked: bool) -> bool:
        if is_asked:
            raise ValueError("tools over MCP are not supported yet; they are served over HTTP")
        return is_asked


class Answered(BaseModel):
    """A body that holds a row and what a model made of it. Subclasses declare the row fields they read."""

    model_config = ConfigDict(extra="ignore")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]

    @field_validator("response")
    @classmethod
    def _has_readable_items(cls, response: dict[str, Any]) -> dict[str, Any]:
        output = response.get("output") or []
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            raise ValueError("`output` must be a list of objects")
        return response

    @property
    def answer(self) -> str:
        """The text of the last assistant message; empty when the model said nothing."""
        for item in reversed(self.response.get("output") or ()):
            if item.get("type") == "message":
                return output_text({"output": [item]})
        return ""


class VerifyRequest(Answered):
    """Body of `/verify`. Subclass it to declare the row fields your verifier reads; the rest is dropped."""

    def scored(self, reward: float) -> VerifyResponse:
        """The answer to this request with its reward. See `VerifyResponse.of` for one with more fields."""
        return VerifyResponse.of(self, reward=reward)


class VerifyResponse(BaseModel):
    """Answer of `/verify` (CONTRACT 5.4). Subclass it to declare fields of your own."""

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None

    @classmethod
    def of(cls: type[V], request: VerifyRequest, *, reward: float, **fields: Any) -> V:
        """Echo the fields that request and answer have in common, and add the reward and `fields`."""
        echoed = {name: value for name, value in request.__dict__.items() if name in cls.model_fields}
        return cls(**{**echoed, "reward": reward, **fields})

    @field_validator("reward")
    @classmethod
    def _is_number(cls, reward: float) -> float:
        # JSON has no NaN: it would arrive as null, and be counted as something it is not.
        if not math.isfinite(reward):
            raise ValueError(f"reward must be a finite number, got {reward}")
        return reward


class SessionServer(Server):
    """What resources servers of both styles, tools and steps, have in common: sessions and aggregation."""

    needs: ClassVar[type[ServerConfig]] = ResourcesConfig
    prefix: ClassVar[PrefixRule] = PrefixRule.ANY_PATH

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self.sessions = SessionStore(
            maximum=self.config.max_sessions, idle_seconds=self.config.session_idle_seconds
        )
        if self.is_stateful and part.workers > 1:
            raise ConfigError(
                f"`num_workers`: {part.workers}, but {type(self).__name__} keeps state of sessions",
                where=part.name,
                hint="it must be 1: a session's requests have to meet the same process",
            )

    @property
    def is_stateful(self) -> bool:
        raise NotImplementedError

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            sweeper = asyncio.create_task(self._sweep())
            try:
                yield
            finally:
                sweeper.cancel()
                await asyncio.wait([sweeper])
                await self.sessions.close_all()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sessions.sweep()

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/aggregate_metrics", self._aggregate_metrics)

    async def _aggregate_metrics(self, request: Request) -> Response:
        body = validated(AggregateRequest, await json_object(request))
        return Json(await asyncio.to_thread(aggregate, body.verify_responses))


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
        self._typed_sessions = ResourcesSessions()
        super().__init__(part)

    @property
    def is_stateful(self) -> bool:
        signatures = [*(tool.signature for tool in self.tools), self._seed_signature, self._verify_signature]
        return any(signature.states for signature in signatures)

    async def seed(self, *args: Any, **kwargs: Any) -> None:
        """Prepare a session. Override as `seed(self, row: MyRow, state: MyState)`, either or both."""

    async def verify(self, *args: Any, **kwargs: Any) -> VerifyResponse:
        """Score a response. Override as `verify(self, request: VerifyRequest)`, plus states you need.

        Must not fail when the caller never seeded a session: state is then as new.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `verify`")

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/seed_session", self._seed_session)
        self.post(app, "/close_session", self._close_session)
        self.post(app, "/verify", self._verify, is_once_per_key=True)
        self.get(app, "/reverify_mode", self._reverify_mode)
        for tool in self.tools:
            self.post(app, f"/{tool.name}", self._endpoint(tool), is_once_per_key=True)

    def _endpoint(self, tool: Tool) -> Any:
        method = getattr(self, tool.name)

        async def call(request: Request) -> Response:
            arguments = validated(tool.arguments, await json_object(request))
            states = tool.signature.state_of(self.sessions, request.session["session_id"])
            result = await method(**tool.keywords(arguments), **states)
            return PlainTextResponse(result) if isinstance(result, str) else Json(result)

        return call

    async def _seed_session(self, request: Request) -> Response:
        body = await json_object(request)
        session_id: str = request.session["session_id"]
        if "resources_session_id" in body and "episode_id" in body:
            seed = validated(ResourcesSeed, body)
            session_id = request.session["session_id"] = seed.resources_session_id
            await self._typed_sessions.seed(seed, lambda: self._seeded(session_id, seed.task_data))
            return Json(ResourcesSeedResponse(resources_session_id=session_id))
        await self._seeded(session_id, body)
        return Json(b"{}")

    async def _seeded(self, session_id: str, row: dict[str, Any]) -> None:
        await self.sessions.close(session_id)  # a second seed starts the session anew
        values: dict[str, Any] = dict(self._seed_signature.state_of(self.sessions, session_id))
        if self._seed_model is not None:
            name = next(iter(self._seed_signature.own))
            values[name] = validated(self._seed_model, without_absent(self._seed_model, row))
        await self.seed(**values)

    async def _close_session(self, request: Request) -> Response:
        close = validated(ResourcesClose, await json_object(request))
        session_id = close.resources_session_id
        await self._typed_sessions.close(session_id, lambda: self.sessions.close(session_id))
        return Json(ResourcesCloseResponse(resources_session_id=session_id))

    async def _verify(self, request: Request) -> Response:
        body = without_absent(self._verify_model, await json_object(request))
        question = validated(self._verify_model, body)
        question.responses_create_params = completed(question.responses_create_params)
        session_id: str = request.session["session_id"]
        states = self._verify_signature.state_of(self.sessions, session_id)
        verdict = await self.verify(question, **states)
        self.sessions.scored(session_id)
        return Json(dict(verdict))

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
