"""One episode = one turn of one agent with the tools of one resources server, then a verdict."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.episodes import EpisodeRequest
from gymctl.contract.responses import ResponsesCreateParams, drop_nulls
from gymctl.servers import (
    Answer,
    EnvironmentConfig,
    EnvironmentServer,
    Episode,
    EpisodeFailed,
    InnerServerError,
    Json,
    ServerRef,
    TransportError,
    checked,
    completed,
    invalid,
    validated,
)

RETRYABLE = frozenset({408, 425, 429})


class SingleAgentTurnConfig(EnvironmentConfig):
    agent_server: ServerRef
    resources_server: ServerRef
    resources_tool_transports: list[Literal["direct_http", "mcp"]] = Field(default_factory=list)


class SingleAgentTurn(EnvironmentServer):
    config: SingleAgentTurnConfig

    def check(self, asked: EpisodeRequest) -> None:
        """Fields beside `task_data` count as task data; two different values for one are refused."""
        task_input = asked.task.task_input
        params = task_input.get("responses_create_params")
        place = ("task", "task_input", "responses_create_params")
        if not isinstance(params, dict):
            raise invalid("missing", place, "Field required", task_input)
        validated(ResponsesCreateParams, drop_nulls(params), *place)
        data = task_input.get("task_data") or {}
        for name, value in task_input.items():
            if name in ("responses_create_params", "task_data"):
                continue
            if name in data and data[name] != value:
                place = ("task", "task_input", name)
                raise invalid("value_error", place, f"`{name}` differs from the one in task_data", value)

    async def play(self, episode: Episode) -> dict[str, Any]:
        task_input = episode.task.task_input
        params = drop_nulls(task_input["responses_create_params"])
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
        if tools is None or tools.get("transport") != "http":
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

    def __init__(self, server: SingleAgentTurn, episode: Episode, data: dict[str, Any]) -> None:
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
        answer = checked(await self._client.call(self._ref, "/seed_session", body))
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
        checked(await self._client.call(self._ref, "/close_session", body, cookies=self.cookies))


class _Agent:
    """The episode's session at the agent; closed by the protocol, or else in the clean-up."""

    def __init__(self, server: SingleAgentTurn, episode: Episode, grants: list[dict[str, Any]]) -> None:
        self._client = server.client
        self._ref = server.config.agent_server
        self._episode = episode
        self._grants = grants
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
        answer = checked(await self._client.call(self._ref, "/v1/agent_sessions", body))
        self._cookies = answer.cookies

    async def respond(self, params: dict[str, Any]) -> dict[str, Any]:
        path = f"/ng-rollout/{self._episode.episode_id.capture_key}/v1/responses"
        answer = checked(await self._client.call(self._ref, path, params, cookies=self._cookies))
        response = _object(answer)
        self._cookies = {**self._cookies, **answer.cookies}
        return response

    async def close(self) -> dict[str, Any]:
        body = {"agent_session_id": self._id, "episode_id": self._episode.episode_id}
        path = "/v1/agent_sessions/close"
        receipt = _object(checked(await self._client.call(self._ref, path, body, cookies=self._cookies)))
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
            str(error), is_terminal=is_terminal, stage=name, partial_response=partial_response
        ) from error
    except TransportError as error:
        raise EpisodeFailed(
            str(error), is_terminal=False, stage=name, kind=error.kind, partial_response=partial_response
        ) from error
    except ValueError as error:
        raise EpisodeFailed(
            f"broken body: {error}", is_terminal=False, stage=name, partial_response=partial_response
        ) from error


app = SingleAgentTurn.app()
