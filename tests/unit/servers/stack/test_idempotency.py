"""First answers: one run per key, also for concurrent, failed and abandoned requests; memory is bounded."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from typing import Any

import pytest
from starlette.responses import Response

from gymctl.servers.stack.border import ErrorBorder
from gymctl.servers.stack.idempotency import Answers, TakenBack
from gymctl.transport import TAKEN_BACK_HEADER


class Work:
    def __init__(self, body: bytes = b"x", error: Exception | None = None) -> None:
        self.runs = 0
        self.was_cancelled = False
        self.go = asyncio.Event()
        self._body, self._error = body, error

    async def __call__(self) -> Response:
        self.runs += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self._error is not None:
            raise self._error
        return Response(self._body)


async def test_concurrent_requests_join_the_first():
    answers, work = Answers(), Work()
    waiting = [asyncio.create_task(answers.once("k", work)) for _ in range(5)]
    await asyncio.sleep(0)
    work.go.set()
    results = [await task for task in waiting]
    assert work.runs == 1
    assert all(result is results[0] for result in results)
    assert await answers.once("k", work) is results[0]


async def test_a_failure_is_an_answer_too():
    answers, work = Answers(), Work(error=ValueError("no"))
    work.go.set()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await answers.once("k", work)
    assert work.runs == 1


async def test_work_outlives_its_caller_and_is_joined():
    answers, work = Answers(linger=60), Work()
    first = asyncio.create_task(answers.once("k", work))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(answers.once("k", work))
    await asyncio.sleep(0)
    work.go.set()
    assert (await second).body == b"x"
    assert (work.runs, work.was_cancelled) == (1, False)


async def test_work_that_nobody_asks_for_again_is_cancelled_and_not_started_anew():
    answers, work = Answers(linger=0), Work()
    first = asyncio.create_task(answers.once("k", work))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert work.was_cancelled
    work.go.set()
    with pytest.raises(TakenBack):
        await answers.once("k", work)
    assert work.runs == 1, "half of it may have happened"


async def test_the_oldest_answers_make_room():
    answers = Answers(max_answers=2, max_bytes=25)
    small, large = Work(b"1234567890"), Work(b"x" * 24)
    for work in (small, large):
        work.go.set()
    for key in ("a", "b", "c"):
        await answers.once(key, small)
    await answers.once("c", small)
    await answers.once("b", small)
    assert small.runs == 3, "b and c are still known"
    await answers.once("a", small)
    assert small.runs == 4, "a was dropped for c"
    await answers.once("d", large)
    await answers.once("c", small)
    assert small.runs == 5, "24 bytes leave no room for any other answer"


@pytest.mark.parametrize("is_circle", [False, True])
async def test_a_remembered_failure_holds_no_request(is_circle):
    class Body:
        pass

    async def fail() -> Response:
        held = Body()
        alive.add(held)
        try:
            raise ValueError("no")
        except ValueError as error:
            if is_circle:
                raise error from error
            raise ValueError("no") from error

    alive: weakref.WeakSet[Body] = weakref.WeakSet()
    answers = Answers()
    with pytest.raises(ValueError, match="no") as caught:
        await answers.once("k", fail)
    assert caught.traceback, "whoever handles the failure still sees where it comes from"
    del caught
    await asyncio.sleep(0)
    gc.collect()
    assert not alive
    with pytest.raises(ValueError, match="no"):
        await answers.once("k", fail)


async def test_work_that_calls_exit_is_a_failure_like_another():
    async def leave() -> Response:
        sys.exit(3)

    answers = Answers()
    for _ in range(2):
        with pytest.raises(BaseExceptionGroup, match="exit"):
            await answers.once("k", leave)


async def test_whoever_asks_for_cancelled_work_is_told_in_a_header(caplog: pytest.LogCaptureFixture):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise TakenBack("too late")

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/run", "headers": []}
    await ErrorBorder(app, "Env___env")(scope, receive, send)
    assert sent[0]["status"] == 500
    assert dict(sent[0]["headers"])[TAKEN_BACK_HEADER.encode()] == b"1"
    assert caplog.messages == ["POST /run: too late"]
