"""A judge: a model that `verify` asks for its opinion.

    class Essays(ResourcesServer):
        config: JudgeConfig

        async def verify(self, request: Essay) -> VerifyResponse:
            opinion = await self.judge.ask(f"Is this a good essay? Answer GOOD or BAD.\n\n{request.answer}")
            return request.scored(1.0 if "GOOD" in opinion else 0.0)

A question that gets no answer (no connection, an error status, a time-out, a broken body) raises JudgeFailed.
Let it pass: `/verify` then answers with a masked sample that names the failure (CONTRACT 5.5), so that nobody
takes the judge's trouble for the model's. An answer that cannot be read as a verdict is not a failed call:
score it as your rubric says. No lock is held while a judge thinks; `judge_max_concurrency` alone bounds how
many questions are out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gymctl.contract.failures import REASON_LENGTH
from gymctl.contract.responses import output_text
from gymctl.contract.rollout import FAILURE_CLASS
from gymctl.servers.resources.config import JudgeConfig
from gymctl.servers.resources.verdicts import VerifyRequest
from gymctl.servers.stack.client import InnerServerError, ServerClient, checked, status_text
from gymctl.transport import TransportError

KIND = "judge_failed"


class JudgeFailed(Exception):
    """The judge gave no answer; the text says why."""


class Judge:
    """Asks the block's `judge_model_server`, a bounded number of questions at once."""

    def __init__(self, client: ServerClient, config: JudgeConfig) -> None:
        self._client = client
        self._server = config.judge_model_server
        self._params = config.judge_responses_create_params
        self._seconds = config.judge_timeout_seconds
        self._places = asyncio.Semaphore(config.judge_max_concurrency)

    async def ask(self, question: str | list[dict[str, Any]], **params: Any) -> str:
        """The text of the judge's answer; empty when it answered without text.

        question: a user message, or Responses input items. params: Responses parameters for this question.
        """
        return output_text(await self.respond({**params, "input": question}))

    async def respond(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The judge's whole Response. `params` go over those of the block. Raises JudgeFailed."""
        body = {**self._params, **params}
        async with self._places:
            try:
                async with asyncio.timeout(self._seconds):
                    answer = checked(await self._client.call(self._server, "/v1/responses", body))
                response = answer.json()
            except TimeoutError as error:
                raise self._failed(f"no answer within {self._seconds:g} s") from error
            except InnerServerError as error:
                text = error.answer.body.decode("utf-8", "replace")
                raise self._failed(f"{status_text(error.answer)}: {text}") from error
            except TransportError as error:
                raise self._failed(str(error)) from error
            except ValueError as error:
                raise self._failed(f"its answer is not JSON: {error}") from error
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise self._failed(f"its answer is no Response: {answer.body[:200]!r}")
        return response

    def _failed(self, why: str) -> JudgeFailed:
        return JudgeFailed(f"judge `{self._server.name}`: {why}"[:REASON_LENGTH])


def failed_verdict(request: VerifyRequest, body: Mapping[str, Any], failure: JudgeFailed) -> dict[str, Any]:
    """The answer of `/verify` when its judge failed; the collector files it as a failure (CONTRACT 5.5)."""
    reason = str(failure)[:REASON_LENGTH]
    instance = body.get("instance_config")
    return {
        **dict(request),
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": KIND,
        "failure_reason": reason,
        "instance_config": {**(instance if isinstance(instance, dict) else {}), "mask_sample": True},
        FAILURE_CLASS: KIND,
        "_ng_failure_judge_error": reason,
    }


def judge_failure(error: Exception) -> JudgeFailed | None:
    """The failure, also when it is all that a group of parallel questions holds; None for any other error."""
    if isinstance(error, ExceptionGroup):
        failed, others = error.split(JudgeFailed)
        return judge_failure(failed.exceptions[0]) if failed is not None and others is None else None
    return error if isinstance(error, JudgeFailed) else None
