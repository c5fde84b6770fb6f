"""One episode = one turn of one agent with the tools of one resources server, then a verdict (CONTRACT 7.6).

    resources     agent          resources       in clean-up, if still open
    /seed_session ─▶ seed, turn, close ─▶ /verify    agent session, then /close_session

Every call below is safe to repeat after a broken connection: seeds and closes by the id of their session,
the turn and the verdict by an idempotency key made of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.captures import CAPTURE_SEGMENT
from gymctl.contract.episodes import Task
from gymctl.contract.responses import ResponsesCreateParams, drop_nulls, for_servers
from gymctl.servers.environments.server import (
    AgentRef,
    EnvironmentConfig,
    EnvironmentServer,
    Episode,
    EpisodeFailed,
)
from gymctl.servers.stack.base import ServerConfig
from gymctl.servers.stack.border import failed_call, failure_headers
from gymctl.servers.stack.client import InnerServerError, ServerRef, checked
from gymctl.servers.stack.params import completed
from gymctl.servers.stack.wire import Json, invalid, validated
from gymctl.transport import Answer, TransportError

RETRYABLE = frozenset({408, 425, 429})
_GONE = frozenset({"transport_unreachable", "transport_peer_drop"})
_NO_DICTIONARY = ("dict_type", "Input should be a valid dictionary")
_MCP_KEYS = {"server_name", "url_path"}


class SingleTurnConfig(EnvironmentConfig):
    """Block of a server that plays single turns."""

    agent_server: AgentRef
    resources_server: ServerRef
    resources_tool_transports: list[Literal["direct_http", "mcp"]] = Field(default_factory=list)


class SingleTurnServer(EnvironmentServer):
    """The protocol; what comes in and goes out at `/run` is the native form, unless a subclass says more."""

    needs: ClassVar[type[ServerConfig]] = SingleTurnConfig

    def check(self, task: Task, place: tuple[str, ...] = ("task", "task_input")) -> None:
        """Fields beside `task_data` count as task data; two different values for one are refused.

        place: where the task input stands in the body.
        """
        task_input = task.task_input
        params, data = task_input.get("responses_create_params"), task_input.get("task_data")
        if not isinstance(params, dict):
            kind, text = ("missing", "Field required") if params is None else _NO_DICTIONARY
            raise invalid(kind, (*place, "responses_create_params"), text, task_input)
        validated(ResponsesCreateParams, drop_nulls(params), *place, "responses_create_params")
        data = {} if data is None else data
        if not isinstance(data, dict):
            raise invalid(_NO_DICTIONARY[0], (*place, "task_data"), _NO_DICTIONARY[1], data)
        for name, value in task_input.items():
            if name not in ("responses_create_params", "task_data") and data.get(name, value) != value:
                text = f"Value error, `{name}` differs from the one in task_data"
                raise invalid("value_error", (*place, name), text, value)

    async def play(self, episode: Episode) -> dict[str, Any]:
        task_input = episode.task.task_input
        params = for_servers(task_input["responses_create_params"])
        resources = _Resources(self, episode, _task_data(task_input))
        with _stage("seed"):
            seeded = await resources.seed()
        agent = _Agent(self, episode, self._grants(seeded, resources.cookies))
        with _stage("agent"):
            await agent.seed()
            response = await agent.respond(params)
        with _stage("cleanup", response):
            receipt = await agent.close()
        if receipt["resources_cookies"] is not None:
            resources.cookies = receipt["resources_cookies"]
        with _stage("verification", response):
            verdict = await resources.verify(params, response)
        return {**verdict, "ng_agent_observations": receipt.get("agent_observations")}

    def _grants(self, seeded: dict[str, Any], cookies: dict[str, str]) -> list[dict[str, Any]]:
        """How the agent may reach the tools, by each configured transport."""
        server = self.config.resources_server
        grants: list[dict[str, Any]] = []
        for transport in self.config.resources_tool_transports:
            if transport == "direct_http":
                grants.append(
                    {
                        "kind": "direct_http",
                        "name": f"{server.name}.direct_http",
                        "required": True,
                        "base_url": self.client.url(server),
                        "cookies": cookies,
                    }
                )
            else:
                grants.append(self._mcp_grant(seeded.get("resources_tools")))
        return grants

    def _mcp_grant(self, tools: dict[str, Any] | None) -> dict[str, Any]:
        if tools is None or tools.get("transport") != "http" or not tools.keys() >= _MCP_KEYS:
            reason = f"`{self.config.resources_server.name}` offers no tools over MCP by HTTP"
            raise EpisodeFailed(reason, is_terminal=True, stage="seed")
        connection = {
            "transport": "streamable_http",
            "url": self.client.url(self.config.resources_server, tools["url_path"]),
            "headers": tools.get("headers") or {},
        }
        return {"kind": "mcp", "name": tools["server_name"], "required": True, "connection": connection}

    async def aggregate_metrics(self, request: Request) -> Response:
        answer = await self.client.call(
            self.config.resources_server, "/aggregate_metrics", await request.body()
        )
        return Json(checked(answer).body)


class _Resources:
    """The episode's session at the resources server; closed in the clean-up."""

    def __init__(self, server: SingleTurnServer, episode: Episode, data: dict[str, Any]) -> None:
        self._client = server.client
        self._ref = server.config.resources_server
        self._episode = episode
        self._data = data
        self._id = f"resources-session-{uuid.uuid4().hex}"
        self.cookies: dict[str, str] = {}

    async def seed(self) -> dict[str, Any]:
        self._episode.on_cleanup(self._close_with_retry)
        body = {
            "resources_session_id": self._id,
            "episode_id": self._episode.episode_id,
            "task_id": self._episode.task.task_id,
            "task_data": self._data,
        }
        key = f"seed-{self._id}"
        answer = checked(await self._client.call_when_admitted(self._ref, "/seed_session", body, key=key))
        seeded = _object(answer)
        if not answer.cookies:
            raise EpisodeFailed("the seeded session came without a cookie", is_terminal=True, stage="seed")
        if seeded.get("resources_session_id") != self._id:
            raise EpisodeFailed("the seeded session has another id", is_terminal=True, stage="seed")
        self.cookies = answer.cookies
        return seeded

    async def verify(self, params: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
        body = {**self._data, "responses_create_params": completed(params), "response": response}
        key = f"verify-{self._id}"
        return _object(
            checked(await self._client.call(self._ref, "/verify", body, cookies=self.cookies, key=key))
        )

    async def _close_with_retry(self) -> None:
        try:
            await self._close()
        except (InnerServerError, TransportError):
            await self._close()

    async def _close(self) -> None:
        body = {"resources_session_id": self._id, "episode_id": self._episode.episode_id}
        key = f"close-{self._id}"
        checked(await self._client.call(self._ref, "/close_session", body, cookies=self.cookies, key=key))


class _Agent:
    """The episode's session at the agent; closed by the protocol, or else in the clean-up."""

    def __init__(self, server: SingleTurnServer, episode: Episode, grants: list[dict[str, Any]]) -> None:
        self._client = server.client
        self._ref = server.config.agent_server
        self._episode = episode
        self._grants = grants
        takes_part = self._ref.name in server.part.capture.token_agents
        self._segment = f"/{CAPTURE_SEGMENT}" if takes_part else ""
        self._id = f"agent-session-{uuid.uuid4().hex}"
        self._cookies: dict[str, str] = {}
        self._is_closed = False

    async def seed(self) -> None:
        self._episode.on_cleanup(self._close_unless_closed)
        body = {
            "agent_session_id": self._id,
            "episode_id": self._episode.episode_id,
            "task_id": self._episode.task.task_id,
            "tool_accesses": self._grants,
            "sandbox_access": None,
        }
        key = f"seed-{self._id}"
        answer = checked(await self._client.call(self._ref, "/v1/agent_sessions", body, key=key))
        self._cookies = answer.cookies

    async def respond(self, params: dict[str, Any]) -> dict[str, Any]:
        path = f"/ng-rollout/{self._episode.episode_id.capture_key}{self._segment}/v1/responses"
        key = f"turn-{self._id}"
        answer = checked(await self._client.call(self._ref, path, params, cookies=self._cookies, key=key))
        response = _object(answer)
        self._cookies = {**self._cookies, **answer.cookies}
        return response

    async def close(self) -> dict[str, Any]:
        body = {"agent_session_id": self._id, "episode_id": self._episode.episode_id}
        path, key = "/v1/agent_sessions/close", f"close-{self._id}"
        answer = await self._client.call(self._ref, path, body, cookies=self._cookies, key=key)
        receipt = _object(checked(answer))
        self._is_closed = True
        return {"resources_cookies": None, **receipt}

    async def _close_unless_closed(self) -> None:
        if not self._is_closed:
            await self.close()


def _task_data(task_input: dict[str, Any]) -> dict[str, Any]:
    """`task_data` and the loose fields beside it, as one."""
    loose = {
        name: value
        for name, value in task_input.items()
        if name not in ("responses_create_params", "task_data")
    }
    return {**loose, **(task_input.get("task_data") or {})}


def _object(answer: Answer) -> dict[str, Any]:
    """The answer's JSON object; anything else is a broken body."""
    value = answer.json()
    if not isinstance(value, dict):
        raise ValueError(f"{answer.url} answered {answer.body[:200]!r}, not a JSON object")
    return value


@contextmanager
def _stage(name: str, partial_response: dict[str, Any] | None = None) -> Iterator[None]:
    """Turn what goes wrong inside into the episode's failure at this stage.

    Terminal, unless the cause may pass: overload, an inner error, a broken connection or body.
    """
    try:
        yield
    except InnerServerError as error:
        status = error.answer.status
        is_terminal = status < 500 and status not in RETRYABLE
        raise EpisodeFailed(
            str(error),
            is_terminal=is_terminal,
            stage=name,
            kind=failure_kind(failed_call(error), name),
            partial_response=partial_response,
            headers=failure_headers(error),
        ) from error
    except TransportError as error:
        raise EpisodeFailed(
            str(error),
            is_terminal=False,
            stage=name,
            kind=error.kind,
            partial_response=partial_response,
            headers=failure_headers(error),
        ) from error
    except ValueError as error:
        raise EpisodeFailed(
            f"broken body: {error}", is_terminal=False, stage=name, partial_response=partial_response
        ) from error


def failure_kind(call: str | None, stage: str) -> str | None:
    """What the innermost call that failed (see `border.failed_call`) says, in the words of CONTRACT 7.4; None
    where they have none for it, such as a request that a provider refuses or a tool that fails."""
    target, _, result = (call or "").rpartition(" ")
    broken = result if result.startswith("transport_") else None
    is_provider = target != "" and ":" not in target.partition("/")[0]
    if stage == "verification":
        # The answer is there: whatever a judge's provider says, it is the verdict that is missing.
        return "judge_failed" if is_provider else broken or "verifier_error"
    if not is_provider:
        return broken
    if result == "429":
        return "provider_quota_exhausted"
    return "provider_unavailable" if result in _GONE or result.startswith("5") else None
