"""Step-style resources servers: an environment that is reset once and then answers every turn of the model.

POST /reset   the row in, the first observation out: an episode begins, the session's earlier one is dropped
POST /step    the row and the model's response in; observation, reward, terminated, truncated out
POST /close   ends the episode early (only where `supports_explicit_close` is true)
POST /aggregate_metrics

There is no verifier: the rewards of the steps are summed by the agent (`gymnasium_agent`). To wrap an
environment of the `gymnasium` package, see `gymctl.servers.resources.gymnasium_env`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.part import ServerPart
from gymctl.contract.stepping import (
    CLEANUP_WARNING,
    EXPLICIT_CLOSE,
    STEP_IDEMPOTENCY,
    STEP_REQUEST_ID,
    Reset,
    Step,
)
from gymctl.errors import ConfigError
from gymctl.servers.resources.handlers import Signature
from gymctl.servers.resources.server import row_model, without_absent
from gymctl.servers.resources.session_server import SessionServer
from gymctl.servers.resources.state import SessionState
from gymctl.servers.resources.verdicts import Answered
from gymctl.servers.stack.wire import Json, json_object, validated
from gymctl.transport import KEY_HEADER

logger = logging.getLogger("gymctl.server")


class StepRequest(Answered):
    """Body of `/step`. Subclass it to declare the row fields your environment reads; the rest is dropped."""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls of this turn, answered through `info["tool_outputs"]`."""
        return [item for item in self.response.get("output") or () if item.get("type") == "function_call"]


class Begun(SessionState):
    """Marks a session whose environment was reset; its steps happen one after the other."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.is_over = False


class GymnasiumServer(SessionServer):
    """Write `reset` and `step`; both may ask for the row and for session state, as handlers of tools do."""

    supports_step_idempotency: ClassVar[bool] = True
    """A step that is asked for again with the same request id happens once."""
    supports_explicit_close: ClassVar[bool] = False
    """True: the agent says when it is done, also after a failure. For state that is costly to keep until the
    session has been idle for long; an episode that terminates is released at once either way."""

    def __init__(self, part: ServerPart) -> None:
        self._reset_signature = Signature.of(type(self).reset)
        self._step_signature = Signature.of(type(self).step)
        self._reset_model = row_model(self._reset_signature)
        self._step_model = _step_model(self._step_signature)
        super().__init__(part)
        if self.config.expose_tools_over_mcp:
            raise ConfigError(
                "`expose_tools_over_mcp`: a step-style server has no tools",
                where=part.name,
                hint="remove the key; the model's tool calls are answered by `step`",
            )
        self._offers = {
            name: True
            for name, is_offered in (
                (STEP_IDEMPOTENCY, self.supports_step_idempotency),
                (EXPLICIT_CLOSE, self.supports_explicit_close),
            )
            if is_offered
        }

    @property
    def is_stateful(self) -> bool:
        """Always: whether an episode has begun is state of its session."""
        return True

    async def reset(self, *args: Any, **kwargs: Any) -> Reset | str | None:
        """Begin an episode. Override as `reset(self, row: MyRow, state: MyState)`, either or both.

        The answer is what the model is told first; None when the row's input says it all.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `reset`")

    async def step(self, *args: Any, **kwargs: Any) -> Step:
        """Answer one turn of the model. Override as `step(self, request: StepRequest, state: MyState)`."""
        raise NotImplementedError(f"{type(self).__name__} has no `step`")

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/reset", self._reset, takes=self._reset_model or dict[str, Any], is_once_per_key=True)
        self.post(app, "/step", self._step, takes=self._step_model)
        if self.supports_explicit_close:
            self.post(app, "/close", self._close)

    async def _reset(self, request: Request) -> Response:
        row = await json_object(request)
        values: dict[str, Any] = {}
        if self._reset_model is not None:
            name = next(iter(self._reset_signature.own))
            values[name] = validated(self._reset_model, without_absent(self._reset_model, row))
        session_id: str = request.session["session_id"]
        await self._end(session_id)
        await self.sessions.begin(session_id)
        logger.info("session %s begins", session_id)
        episode = self.sessions.get(session_id, Begun)
        async with episode.lock:
            states = self._reset_signature.state_of(self.sessions, session_id)
            try:
                begun = await self.reset(**values, **states)
            except BaseException:  # whoever cancels or fails: half an episode must not be stepped
                await self._drop(session_id, episode)
                raise
        start = begun if isinstance(begun, Reset) else Reset(observation=begun)
        return Json({"observation": start.observation, "info": {**start.info, **self._offers}})

    async def _step(self, request: Request) -> Response:
        body = await json_object(request)
        session_id: str = request.session["session_id"]
        repeatable = body.pop(STEP_REQUEST_ID, None) if self.supports_step_idempotency else None
        key = repeatable or request.headers.get(KEY_HEADER)
        if key is None:
            return await self._stepped(session_id, body)
        return await self.answers.once(f"{session_id}\n{key}", lambda: self._stepped(session_id, body))

    async def _stepped(self, session_id: str, body: dict[str, Any]) -> Response:
        turn = validated(self._step_model, without_absent(self._step_model, body))
        values: dict[str, Any] = {name: turn for name in list(self._step_signature.own)[:1]}
        episode = self.sessions.find(session_id, Begun)
        if episode is None:
            raise HTTPException(409, "no episode in this session; POST /reset begins one")
        async with episode.lock:
            if episode.is_over:
                raise HTTPException(409, "the episode is over; POST /reset begins a new one")
            states = self._step_signature.state_of(self.sessions, session_id)
            step = await self.step(**values, **states)
            answer = dict(step)
            if step.is_last:
                answer["info"] = step.info | await self._drop(session_id, episode)
        return Json(answer)

    async def _drop(self, session_id: str, episode: Begun) -> dict[str, str]:
        """Release a session that is over. What was reached in it stands, even if the release fails."""
        episode.is_over = True
        self.sessions.scored(session_id)
        try:
            await self.sessions.forget(session_id)
        except Exception as error:  # an author's release: the step's answer must not be lost with it
            logger.exception("an episode's state was not released")
            return {CLEANUP_WARNING: f"not released: {error!r}"[:500]}
        return {}

    async def _close(self, request: Request) -> Response:
        await self._end(request.session["session_id"])
        return Json(b"{}")

    async def _end(self, session_id: str) -> None:
        """Release the session's episode after the step that is at work; a failure can be tried again."""
        episode = self.sessions.find(session_id, Begun)
        if episode is None:
            episode = Begun()  # an earlier release failed: what is left of the session goes now
        async with episode.lock:
            episode.is_over = True
            await self.sessions.forget(session_id)


def _step_model(signature: Signature) -> type[StepRequest]:
    model = row_model(signature) or StepRequest
    if not issubclass(model, StepRequest):
        raise TypeError(f"`step` takes a {model.__name__}, which must extend StepRequest")
    return model
