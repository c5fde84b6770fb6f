"""Environment servers: the owner of an episode, from admission to clean-up (CONTRACT 7).

    admission ──▶ episode (under a deadline) ──▶ clean-up, always, newest first ──▶ answer
        └ too long: failure `admission`     └ too long: failure `Episode timed out`

Whatever goes wrong inside an episode is an answer with HTTP 200 and a `failure`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.aggregate import AggregateRequest
from gymctl.contract.episodes import EpisodeFailure, EpisodeId, EpisodeRequest, EpisodeResponse, Task
from gymctl.contract.failures import REASON_LENGTH
from gymctl.contract.part import ServerPart
from gymctl.contract.servers import ServerKind
from gymctl.servers.stack.base import Server, ServerConfig
from gymctl.servers.stack.client import ServerRef
from gymctl.servers.stack.prefix import PrefixRule
from gymctl.servers.stack.unwinding import to_the_end
from gymctl.servers.stack.wire import Json, json_object, validated
from gymctl.transport import ROLLOUT

logger = logging.getLogger("gymctl.server")


class AgentRef(ServerRef):
    """A reference to an agent; without a `type` it is one all the same (CONTRACT 1.2)."""

    type: ServerKind = "responses_api_agents"


class EnvironmentConfig(ServerConfig):
    """Block of an environment server. Unlike the other kinds it takes no key that it does not know."""

    model_config = ConfigDict(extra="forbid")

    max_concurrent_episodes: int | None = Field(default=None, gt=0)
    queue_timeout_seconds: float | None = Field(default=None, gt=0)
    default_episode_timeout_seconds: float | None = Field(default=None, gt=0)
    cleanup_timeout_seconds: float = Field(gt=0)

    @model_validator(mode="after")
    def _queue_has_a_limit(self) -> EnvironmentConfig:
        if self.max_concurrent_episodes is not None and self.queue_timeout_seconds is None:
            raise ValueError("`max_concurrent_episodes` needs `queue_timeout_seconds`")
        return self


class EpisodeFailed(Exception):
    """A failure that the protocol knows how to answer. Fields as in CONTRACT 7.2 and 7.4."""

    def __init__(
        self,
        reason: str,
        *,
        is_terminal: bool,
        stage: str | None = None,
        kind: str | None = None,
        partial_response: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """headers: told beside the failure, whose fields the contract has closed."""
        super().__init__(reason)
        self.headers = dict(headers or {})
        self.failure = EpisodeFailure(
            failure_reason=reason[:REASON_LENGTH],
            terminal=is_terminal,
            failure_kind=kind,
            stage=stage,
            partial_response=partial_response,
        )


class Episode:
    """One attempt at one task: its identity, its input, and what has to be undone in the end."""

    def __init__(self, episode_id: EpisodeId, task: Task) -> None:
        self.episode_id = episode_id
        self.task = task
        self.headers: dict[str, str] = {}
        """Of its answer; set when it has failed."""
        self._cleanups: list[Callable[[], Awaitable[None]]] = []

    def on_cleanup(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Run `callback` when the episode is over, however it ends; the one registered last runs first."""
        self._cleanups.append(callback)

    async def clean_up(self, seconds: float) -> None:
        """Run all callbacks, one at a time, within `seconds` together. Failures are logged, not raised."""
        try:
            async with asyncio.timeout(seconds):
                while self._cleanups:
                    callback = self._cleanups.pop()
                    try:
                        await callback()
                    except Exception:
                        logger.exception("clean-up of episode %s failed", self.episode_id.capture_key)
        except TimeoutError:
            logger.error(
                "clean-up of episode %s took longer than %s s; %d steps were left out",
                self.episode_id.capture_key,
                seconds,
                len(self._cleanups),
            )


class EnvironmentServer(Server):
    """Override `play`: the protocol of one episode. It returns the result, or raises EpisodeFailed."""

    needs: ClassVar[type[ServerConfig]] = EnvironmentConfig
    prefix: ClassVar[PrefixRule] = PrefixRule.NONE
    has_session: ClassVar[bool] = False
    takes: ClassVar[type[BaseModel]] = EpisodeRequest
    """What `/run` takes."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        limit = self.config.max_concurrent_episodes
        self._admission = None if limit is None else asyncio.Semaphore(limit)

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/run", self.run, takes=self.takes, is_once_per_key=True)
        self.post(app, "/aggregate_metrics", self.aggregate_metrics, takes=AggregateRequest)

    async def play(self, episode: Episode) -> dict[str, Any]:
        """Run the episode and return its `result`."""
        raise NotImplementedError(f"{type(self).__name__} has no `play`")

    async def aggregate_metrics(self, request: Request) -> Response:
        """Answer `/aggregate_metrics`, usually by forwarding it."""
        raise NotImplementedError(f"{type(self).__name__} has no `aggregate_metrics`")

    async def run(self, request: Request) -> Response:
        """An episode in the native form. Override for servers that take other forms as well."""
        return await self.native(await json_object(request))

    async def native(self, body: dict[str, Any]) -> Response:
        asked = validated(EpisodeRequest, body)
        self.check(asked.task)
        episode = Episode(asked.episode_id, asked.task)
        plain = _without_unset(await self.answer(episode))
        return Json(plain, headers=episode.headers)

    def check(self, task: Task) -> None:
        """Raise a 422 for a `task_input` that the protocol cannot take."""

    async def answer(self, episode: Episode) -> EpisodeResponse:
        """Play the episode; calls made and lines logged meanwhile carry its capture key."""
        ROLLOUT.set(episode.episode_id.capture_key)
        result, failure = None, None
        try:
            async with self._admitted():
                result = await self._played(episode)
        except EpisodeFailed as error:
            failure = error.failure
            episode.headers = error.headers
        return EpisodeResponse(
            episode_id=episode.episode_id, task_id=episode.task.task_id, result=result, failure=failure
        )

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        """One of the places; held until the clean-up is through."""
        if self._admission is None:
            yield
            return
        try:
            async with asyncio.timeout(self.config.queue_timeout_seconds):
                await self._admission.acquire()
        except TimeoutError:
            raise EpisodeFailed("Episode admission timed out", is_terminal=False, stage="admission") from None
        try:
            yield
        finally:
            self._admission.release()

    async def _played(self, episode: Episode) -> dict[str, Any]:
        try:
            return await self._within_deadline(episode)
        except EpisodeFailed:
            raise
        except Exception as error:
            logger.exception("episode %s failed", episode.episode_id.capture_key)
            reason = f"Unhandled environment server error: {type(error).__name__}: {error}"
            raise EpisodeFailed(reason, is_terminal=True) from error
        finally:
            await to_the_end(episode.clean_up(self.config.cleanup_timeout_seconds))

    async def _within_deadline(self, episode: Episode) -> dict[str, Any]:
        deadline = asyncio.timeout(self.config.default_episode_timeout_seconds)
        try:
            async with deadline:
                return await self.play(episode)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise EpisodeFailed("Episode timed out", is_terminal=False) from None


def _without_unset(answer: EpisodeResponse) -> dict[str, Any]:
    """`failure_kind` and `stage` are left out when they are null; everything else stays (CONTRACT 7.2)."""
    plain: dict[str, Any] = {
        "episode_id": answer.episode_id.model_dump(),
        "task_id": answer.task_id.model_dump(),
        "result": answer.result,
        "failure": None,
    }
    if answer.failure is not None:
        plain["failure"] = {
            key: value
            for key, value in answer.failure.model_dump().items()
            if value is not None or key not in ("failure_kind", "stage")
        }
    return plain
