"""Agent servers: the loop between a model and tools, for flat rows and within sessions.

    POST /run                         a row in, a scored rollout out: seed, turn, verify
    POST /v1/responses                one turn; its output holds every new item, tool outputs included
    POST /v1/agent_sessions, …/close  a turn's tools granted by an environment server
    POST /aggregate_metrics           forwarded to the resources server

A harness overrides `respond`, and in it calls `ask` (the model) and `call_tool` (the tools). `/run`
calls it in this process; a caller sees the same as if it had come through `/v1/responses`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field, field_validator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.aggregate import AggregateRequest, AggregateResponse
from gymctl.contract.part import ServerPart
from gymctl.contract.responses import FlatRow, ResponsesCreateParams, for_servers, presentable
from gymctl.contract.rollout import BROKEN_CALLS, MALFORMED_CALLS, ROLLOUT_ID, TRAJECTORY, rollout_name
from gymctl.servers.agents.lifecycle import SessionLifecycle
from gymctl.servers.agents.observing import Activation
from gymctl.servers.agents.sessions import (
    AgentClose,
    AgentSeed,
    AgentSession,
    AgentSessions,
    ToolAccess,
    direct_access,
    unique_names,
)
from gymctl.servers.stack.base import Server, ServerConfig
from gymctl.servers.stack.border import told
from gymctl.servers.stack.client import ServerRef, checked
from gymctl.servers.stack.heartbeat import beaten
from gymctl.servers.stack.params import completed
from gymctl.servers.stack.prefix import PREFIX_KEY, PrefixRule
from gymctl.servers.stack.unwinding import to_the_end
from gymctl.servers.stack.wire import Json, invalid, json_object, validated
from gymctl.transport import KEY_HEADER, ROLLOUT, Answer, TransportError

logger = logging.getLogger("gymctl.server")

SESSION_KEY = "agent_session_id"
ABANDON_SECONDS = 10.0


NO_TOOLS = frozenset({"seed_session", "verify", "close_session", "aggregate_metrics"})
"""Routes of a resources server that a model must not reach by calling a tool of that name."""


class AgentConfig(ServerConfig):
    """Block of an agent."""

    resources_server: ServerRef | None = None
    """Needed for `/run` and for `/aggregate_metrics`."""
    run_heartbeat_seconds: float | None = Field(default=None, gt=0)
    """A `/run` that lasts longer writes white space as often as this; null: silence until the answer."""
    session_close_retry_window_seconds: float = Field(default=300, gt=0)
    skip_verification: bool = False
    skip_verification_reward: float = 0.0
    tool_accesses: list[ToolAccess] = Field(default_factory=list)
    token_id_capture: bool = False
    """Token ids of its model calls are recorded, when the global `token_id_capture` is enabled."""

    @field_validator("tool_accesses")
    @classmethod
    def _unique_names(cls, accesses: list[ToolAccess]) -> list[ToolAccess]:
        return unique_names(accesses)


@dataclass
class Turn:
    """One activation of the agent: what it may use, and the cookie jars it leaves behind.

    prefix is put before the path of model calls, so that a model server knows the rollout they belong to.
    """

    prefix: str = ""
    tools_url: str | None = None
    tools_headers: dict[str, str] = field(default_factory=dict)
    resources_cookies: dict[str, str] = field(default_factory=dict)
    model_cookies: dict[str, str] = field(default_factory=dict)
    is_in_session: bool = False
    malformed_calls: int = 0
    broken_calls: int = 0
    observed: Activation | None = None
    """What is noted of this turn; None: nobody asks."""

    @property
    def cookies(self) -> dict[str, str]:
        """Both jars; names differ from server to server."""
        return {**self.model_cookies, **self.resources_cookies}


class AgentServer(Server):
    """Base of agents. Override `respond`; `open_session` and `close_session` if a session needs more."""

    needs: ClassVar[type[ServerConfig]] = AgentConfig
    prefix: ClassVar[PrefixRule] = PrefixRule.RESPONSES_ONLY
    has_agent_sessions: ClassVar[bool] = False
    plays_steps: ClassVar[bool] = False
    """True: `run` resets and steps a step-style environment; an agent with a `run` of its own says which.
    A configuration that binds it to a resources server of the other style is refused."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self.agent_sessions = AgentSessions(self.config.session_close_retry_window_seconds)
        self._session_lifecycle = SessionLifecycle(
            self.agent_sessions, self, self.config.tool_accesses, part.implementation
        )

    async def respond(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        """Work on the task until done and return a Response whose output holds all new items.

        `params` are checked Responses parameters without nulls (but see `for_servers`).
        """
        raise NotImplementedError(f"{type(self).__name__} has no `respond`")

    async def call_tool(self, name: str, arguments: str, turn: Turn) -> str:
        """What a tool of the turn says, whatever its status. Arguments that are not JSON never reach it."""
        try:
            json.loads(arguments)
        except (ValueError, RecursionError) as error:
            turn.malformed_calls += 1
            return json.dumps({"error": f"Invalid tool call arguments: {error}"})
        if name.rpartition("/")[2] in NO_TOOLS:  # also behind a rollout prefix
            return '{"detail":"Not Found"}'
        if turn.tools_url is None:
            raise ValueError(f"the model called `{name}`, but this turn has no tools")
        started_at = 0.0 if turn.observed is None else time.time()
        answer = await self.client.call_url(
            f"{turn.tools_url}/{quote(name, safe='', errors='replace')}",
            arguments.encode("utf-8", "surrogatepass"),
            cookies=turn.resources_cookies,
            headers=turn.tools_headers,
            key=f"tool-{uuid.uuid4().hex}",
        )
        turn.resources_cookies.update(answer.cookies)
        turn.broken_calls += answer.status >= 500
        output = answer.body.decode("utf-8", "replace")
        if turn.observed is not None:
            turn.observed.used(name, arguments, started_at, is_failed=answer.is_error, output=output)
        return output

    async def open_session(self, session: AgentSession, accesses: list[ToolAccess]) -> None:
        """Set a session up: here, with its one direct HTTP access. Raise what the harness cannot serve."""
        if session.seed.sandbox_access is not None:
            raise ValueError("this agent cannot use a sandbox")
        session.tools = direct_access(accesses)
        session.cookies = None if session.tools is None else dict(session.tools.cookies)

    async def close_session(self, session: AgentSession) -> None:
        """Undo `open_session`. When it raises, the session can be closed again."""

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/run", self._run, takes=FlatRow, is_once_per_key=True)
        self.post(app, "/v1/responses", self._responses, takes=ResponsesCreateParams, is_once_per_key=True)
        self.post(app, "/v1/agent_sessions", self._open_session, takes=AgentSeed)
        self.post(app, "/v1/agent_sessions/close", self._close_session, takes=AgentClose)
        self.post(app, "/aggregate_metrics", self._aggregate_metrics, takes=AggregateRequest)

    # One rollout

    async def _run(self, request: Request) -> Response:
        row = await json_object(request)
        if (self.part.is_observed or self.part.capture.token_agents) and ROLLOUT.get() is None:
            ROLLOUT.set(rollout_name(row))  # a client that does not say it in a header
        row.pop(ROLLOUT_ID, None)
        params = row.get("responses_create_params")
        if not isinstance(params, dict):
            raise invalid("missing", ("responses_create_params",), "Field required", row)
        params = for_servers(params)
        validated(ResponsesCreateParams, params, "responses_create_params")
        row["responses_create_params"] = completed(params)
        work = self.run(row, params, self._foreign(request.cookies))
        beat = self.config.run_heartbeat_seconds
        if beat is None or KEY_HEADER in request.headers:  # ours have no such limit, and need the status
            return Json(await work)
        return await beaten(work, beat, lambda error: told(error, request.scope, self.label))

    async def run(self, row: dict[str, Any], params: dict[str, Any], cookies: dict[str, str]) -> Any:
        """A checked row in, a scored rollout out, as JSON values or bytes: seed, turn, verify.

        `params` are the row's parameters without nulls, `cookies` the caller's. A harness whose episodes go
        another way overrides this.
        """
        resources = self.resources_server("/run")
        rollout = uuid.uuid4().hex
        seed_key = f"seed-{rollout}"
        seeded = checked(
            await self.client.call_when_admitted(
                resources, "/seed_session", row, cookies=cookies, key=seed_key
            )
        )
        turn = Turn(
            tools_url=self.client.url(resources),
            resources_cookies={**cookies, **seeded.cookies},
            observed=self.observation(),
        )
        try:
            row["response"] = await self._played(params, turn)
            if self.config.skip_verification:
                reward = float(self.config.skip_verification_reward)
                return self.with_trajectory(
                    {**row, "reward": reward, "verification_skipped": True}, row, turn
                )
            verified = await self.client.call(
                resources, "/verify", row, cookies=turn.cookies, key=f"verify-{rollout}"
            )
            return self.with_trajectory(checked(verified), row, turn)
        except BaseException:
            await to_the_end(self._abandon(resources, turn, rollout))
            raise

    def observation(self, number: int = 1) -> Activation | None:
        """For `Turn.observed`: what notes the agent's activation; None while observability is off."""
        return Activation(number) if self.part.is_observed else None

    def with_trajectory(self, result: Answer | dict[str, Any], row: dict[str, Any], turn: Turn) -> Any:
        """The result of a rollout, with `ng_trajectory` when its turn was observed; else as it came."""
        if turn.observed is None:
            return result.body if isinstance(result, Answer) else result
        record = result.json() if isinstance(result, Answer) else result
        if not isinstance(record, dict):
            return record
        return {**record, TRAJECTORY: turn.observed.trajectory(row, ROLLOUT.get(), record)}

    async def _abandon(self, resources: ServerRef, turn: Turn, rollout: str) -> None:
        """Close the session of a rollout that was not scored, instead of leaving it to the idle limit."""
        body = {"resources_session_id": f"resources-session-{rollout}", "episode_id": {"rollout_id": rollout}}
        try:
            async with asyncio.timeout(ABANDON_SECONDS):
                await self.client.call(resources, "/close_session", body, cookies=turn.resources_cookies)
        except (TransportError, TimeoutError) as error:
            logger.warning("the session of a failed rollout stays open until it is idle: %s", error)

    def resources_server(self, path: str) -> ServerRef:
        """The resources server of this agent's block, which `path` cannot do without."""
        if self.config.resources_server is None:
            raise ValueError(f"{path} needs `resources_server` in the block of {self.config.name}")
        return self.config.resources_server

    # One turn

    async def _played(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        response = await self.responded(params, turn)
        counts = {MALFORMED_CALLS: turn.malformed_calls, BROKEN_CALLS: turn.broken_calls}
        told = {key: str(count) for key, count in counts.items() if count}
        if told:
            response["metadata"] = {**(response.get("metadata") or {}), **told}
        return {**response, "output": presentable(response["output"])}

    async def responded(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        """`respond`, and how it ended is noted where the turn is observed."""
        if turn.observed is None:
            return await self.respond(params, turn)
        try:
            response = await self.respond(params, turn)
        except BaseException as error:
            turn.observed.ended(None, error)
            raise
        turn.observed.ended(response)
        return response

    async def _responses(self, request: Request) -> Response:
        params = for_servers(await json_object(request))
        validated(ResponsesCreateParams, params)
        prefix = quote(request.scope.get(PREFIX_KEY, ""))  # an id may hold what stands for itself in no URL
        session_id = request.session.get(SESSION_KEY)
        if session_id is None:
            return await self._respond_alone(params, prefix, request)
        return await self._respond_in(self.agent_sessions.active(session_id), params, prefix, request)

    async def _respond_alone(self, params: dict[str, Any], prefix: str, request: Request) -> Response:
        resources = self.config.resources_server
        turn = Turn(
            prefix=prefix,
            tools_url=None if resources is None else self.client.url(resources),
            resources_cookies=self._foreign(request.cookies),
            model_cookies=self._foreign(request.cookies),
        )
        response = Json(await self._played(params, turn))
        _set_cookies(response, turn.cookies)
        return response

    async def _respond_in(
        self, session: AgentSession, params: dict[str, Any], prefix: str, request: Request
    ) -> Response:
        tools = session.tools
        turn = Turn(
            prefix=prefix,
            tools_url=None if tools is None else tools.base_url.rstrip("/"),
            tools_headers={} if tools is None else tools.headers,
            resources_cookies={} if session.cookies is None else session.cookies,
            model_cookies=self._foreign(request.cookies),
            is_in_session=True,
            observed=self.observation(len(session.observed) + 1),
        )
        if turn.observed is not None:
            session.observed.append(turn.observed)
        async with session.activation():
            response = Json(await self._played(params, turn))
        _set_cookies(response, turn.model_cookies)
        return response

    def _foreign(self, cookies: dict[str, str]) -> dict[str, str]:
        """The caller's cookies without our own, which is none of the other servers' business."""
        return {name: value for name, value in cookies.items() if name != self.label}

    # Sessions

    async def _open_session(self, request: Request) -> Response:
        self._require_sessions()
        seed = validated(AgentSeed, await json_object(request))
        await self._session_lifecycle.open(seed, request.session.get(SESSION_KEY))
        request.session[SESSION_KEY] = seed.agent_session_id
        return Json({SESSION_KEY: seed.agent_session_id})

    async def _close_session(self, request: Request) -> Response:
        self._require_sessions()
        close = validated(AgentClose, await json_object(request))
        return Json(await self._session_lifecycle.close(close, request.session.get(SESSION_KEY)))

    def _require_sessions(self) -> None:
        if not self.has_agent_sessions:
            raise NotImplementedError(f"{type(self).__name__} has no agent sessions")
        if self.part.workers > 1:
            raise ValueError(f"agent sessions need `num_workers: 1`, not {self.part.workers}")

    # Metrics

    async def _aggregate_metrics(self, request: Request) -> Response:
        if self.config.skip_verification:
            return Json(AggregateResponse())
        resources = self.resources_server("/aggregate_metrics")
        answer = await self.client.call(resources, "/aggregate_metrics", await request.body())
        return Json(checked(answer).body)


def _set_cookies(response: Response, cookies: dict[str, str]) -> None:
    """Values stay as they came: they are signed by their own servers."""
    for name, value in cookies.items():
        response.raw_headers.append((b"set-cookie", f"{name}={value}; path=/".encode("utf-8", "replace")))
