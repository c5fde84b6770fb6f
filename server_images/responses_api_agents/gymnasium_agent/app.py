"""An agent that plays a step-style environment: observation, answer, step, until the episode ends."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from gymctl.contract.responses import Usage, presentable
from gymctl.contract.stepping import (
    CLEANUP_WARNING,
    EXPLICIT_CLOSE,
    STEP_IDEMPOTENCY,
    STEP_REQUEST_ID,
    TOOL_OUTPUTS,
    Reset,
    Step,
)
from gymctl.servers import (
    AgentConfig,
    AgentServer,
    Answer,
    InnerServerError,
    ServerClient,
    ServerRef,
    TransportError,
    Turn,
    VerifyResponse,
    ask,
    checked,
    conversation_of,
)
from gymctl.servers.stack.unwinding import to_the_end

CLOSE_SECONDS = 30.0
"""A server that does not let go of an episode must not hold its rollout."""
RETRY_SECONDS = 0.5

logger = logging.getLogger("gymctl.server")


class GymnasiumAgentConfig(AgentConfig):
    model_server: ServerRef
    max_steps: int = Field(default=10, ge=1)
    """Answers of the model per episode; one that has not ended by then is truncated."""


class EpisodeResult(VerifyResponse):
    """The row, the whole conversation, the sum of the rewards, and how the episode ended."""

    terminated: bool
    truncated: bool
    info: dict[str, Any]


class GymnasiumAgent(AgentServer):
    """The environment scores: there is no verifier. Sessions are not its business, `/run` is."""

    config: GymnasiumAgentConfig
    plays_steps: ClassVar[bool] = True

    async def respond(self, params: dict[str, Any], turn: Turn) -> dict[str, Any]:
        raise NotImplementedError(
            "gymnasium_agent plays whole episodes; POST /run, or a `legacy_agent` environment server in front"
        )

    async def run(self, row: dict[str, Any], params: dict[str, Any], cookies: dict[str, str]) -> Any:
        environment = Environment(self.client, self.resources_server("/run"), row, cookies)
        turn = Turn(model_cookies=cookies, observed=self.observation())
        try:
            result = await self._play(environment, row, params, turn)
        except BaseException:  # also when the caller left: an environment is released, whatever happened
            await to_the_end(environment.close())
            raise
        warning = await environment.close()
        if warning is not None:
            result.info = {**result.info, CLEANUP_WARNING: warning}
        skipped = {"verification_skipped": True} if self.config.skip_verification else {}
        if turn.observed is not None:
            turn.observed.ended(result.response)
        return self.with_trajectory({**dict(result), **skipped}, row, turn)

    async def _play(
        self, environment: Environment, row: dict[str, Any], params: dict[str, Any], turn: Turn
    ) -> EpisodeResult:
        start = await environment.reset()
        given = [*conversation_of(params), *_messages(start.observation)]
        produced: list[dict[str, Any]] = []
        usages: list[Usage | None] = []
        reward = 0.0
        for count in range(1, self.config.max_steps + 1):
            asked = {**params, "input": [*given, *produced]}
            response = await ask(self.client, self.config.model_server, asked, turn)
            response["output"] = presentable(response["output"])
            usages.append(Usage.of(response))
            step = await environment.step(response)
            reward += step.reward
            produced += response["output"]
            produced += [*_tool_outputs(step.info), *_messages(step.observation)]
            if step.is_last or count == self.config.max_steps:
                break
        usage = Usage.total(usages)
        spent = None if usage is None else usage.model_dump()
        skips = self.config.skip_verification
        return EpisodeResult(
            responses_create_params={**row["responses_create_params"], "input": given},
            response={**response, "output": produced, "usage": spent},
            reward=float(self.config.skip_verification_reward) if skips else reward,
            terminated=step.terminated,
            truncated=step.truncated or not step.is_last,
            info=step.info,
        )


class Environment:
    """One episode on a step-style server: its cookies, and what it said it can do."""

    def __init__(
        self, client: ServerClient, server: ServerRef, row: dict[str, Any], cookies: Mapping[str, str]
    ) -> None:
        self._client = client
        self._server = server
        self._row = row
        self._cookies = dict(cookies)
        self._steps_are_repeatable = False
        self._is_closable = False

    async def reset(self) -> Reset:
        start = Reset.model_validate(await self._call("/reset", self._row))
        self._steps_are_repeatable = start.offers(STEP_IDEMPOTENCY)
        self._is_closable = start.offers(EXPLICIT_CLOSE)
        return start

    async def step(self, response: dict[str, Any]) -> Step:
        """A connection that broke is only tried again when the server knows a repeated step."""
        body = {**self._row, "response": response}
        if not self._steps_are_repeatable:
            return Step.model_validate(await self._call("/step", body))
        request_id = uuid.uuid4().hex
        body[STEP_REQUEST_ID] = request_id
        for is_last in (False, False, True):
            try:
                return Step.model_validate(await self._call("/step", body, key=request_id))
            except TransportError as error:
                if error.kind != "transport_peer_drop" or is_last:
                    raise
                logger.warning("%s; asking again", error)
                await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> str | None:
        """Let go, where the server wants to be told. Never raises; what went wrong is the answer."""
        if not self._is_closable:
            return None
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                checked(await self._client.call(self._server, "/close", {}, cookies=self._cookies))
        except InnerServerError as error:
            return self._warned(f"{error}: {error.answer.body[:300]!r}")
        except (TransportError, RuntimeError) as error:
            return self._warned(str(error))
        except TimeoutError:
            return self._warned(f"no answer within {CLOSE_SECONDS:.0f} s")
        return None

    def _warned(self, reason: str) -> str:
        warning = f"{self._server.name} could not close the episode: {reason}"
        logger.warning(warning)
        return warning

    async def _call(self, path: str, body: dict[str, Any], key: str | None = None) -> Any:
        answer: Answer = checked(
            await self._client.call(self._server, path, body, cookies=self._cookies, key=key)
        )
        self._cookies.update(answer.cookies)
        return answer.json()


def _messages(observation: str | None) -> list[dict[str, Any]]:
    return [] if observation is None else [{"type": "message", "role": "user", "content": observation}]


def _tool_outputs(info: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function_call_output",
            "call_id": made["call_id"],
            "output": made["output"],
            "id": None,
            "status": None,
        }
        for made in info.get(TOOL_OUTPUTS) or ()
    ]


app = GymnasiumAgent.app()
