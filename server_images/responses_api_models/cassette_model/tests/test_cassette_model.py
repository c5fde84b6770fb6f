"""What a cassette promises: the same answers without the model, misses that say why, a file to commit."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gymctl.testing import ScriptedModel, Served, call, fault, message, serving

IMAGE = Path(__file__).parents[1]
LIVE = {"type": "responses_api_models", "name": "live"}
QUESTION = {"input": [{"role": "user", "content": "What is 2 + 2?"}], "temperature": 1.0}
CHAT = {"messages": [{"role": "user", "content": "What is 2 + 2?"}]}
ANTHROPIC = {"model": "m", "max_tokens": 9, **CHAT}


@dataclass
class Deck:
    """A cassette file, and servers that record and play it."""

    file: Path
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The bodies that reached the model."""

    @asynccontextmanager
    async def recording(self, script: Any = None, **settings: Any) -> AsyncIterator[Served]:
        numbers = itertools.count(1)

        def answers(body: dict[str, Any], number: int) -> Any:
            return message(f"answer {next(numbers)}")

        async with (
            ScriptedModel(script or answers, name="live") as model,
            self._serving({"mode": "record", "model_server": LIVE, **settings}, {"live": model}) as recorder,
        ):
            try:
                yield recorder
            finally:
                self.asked += model.requests

    @asynccontextmanager
    async def replaying(self, live: ScriptedModel | None = None, **settings: Any) -> AsyncIterator[Served]:
        neighbours = {} if live is None else {"live": live}
        async with self._serving({"mode": "replay", **settings}, neighbours) as player:
            yield player

    def _serving(self, settings: dict[str, Any], neighbours: Any) -> Any:
        return serving(IMAGE, {"file": str(self.file), **settings}, name="policy_model", servers=neighbours)


@pytest.fixture
def deck(tmp_path: Path) -> Deck:
    return Deck(tmp_path / "run.cassette")


async def ask(server: Served, body: Any = QUESTION, rollout: str = "0-0", path: str = "/v1/responses") -> Any:
    return await server.post(f"/ng-rollout/{rollout}{path}", body)


def said(answer: Any) -> str:
    assert answer.status == 200, answer.body
    return answer.json()["output"][-1]["content"][0]["text"]


async def test_attempts_stay_different_and_repeats_come_in_order(deck: Deck) -> None:
    rollouts = ["0-0", "0-1", "0-2", "0-3", "0-1"]
    async with deck.recording() as recorder:
        recorded = [said(await ask(recorder, rollout=rollout)) for rollout in rollouts]
    assert len(set(recorded)) == 5
    async with deck.replaying() as player:
        order = [3, 1, 0, 2, 4]  # whichever rollout comes first
        replayed = {index: said(await ask(player, rollout=rollouts[index])) for index in order}
        assert [replayed[index] for index in range(5)] == recorded
        assert said(await ask(player, rollout="0-1")) == recorded[1]  # after the last, the first


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", QUESTION),
        ("/v1/chat/completions", CHAT),
        ("/v1/messages", ANTHROPIC),
        ("/v1/responses", {**QUESTION, "stream": True}),
        ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
        ("/v1/messages", {**ANTHROPIC, "stream": True}),
    ],
)
async def test_every_dialect_plain_and_streamed_comes_back_byte_for_byte(
    deck: Deck, path: str, body: Any
) -> None:
    async with deck.recording() as recorder:
        first = await ask(recorder, body, path=path)
        plain = await ask(recorder, {**body, "stream": False}, path=path)
    async with deck.replaying() as player:
        again = await ask(player, body, path=path)
        assert (again.status, again.header("content-type"), again.body) == (
            first.status,
            first.header("content-type"),
            first.body,
        )
        assert (await ask(player, {**body, "stream": False}, path=path)).body == plain.body
    is_stream = (first.header("content-type") or "").startswith("text/event-stream")
    assert is_stream == bool(body.get("stream"))


async def test_errors_come_back_as_they_were(deck: Deck) -> None:
    wrong = {**QUESTION, "no_such_key": 1}
    script = [fault(503, "busy"), message("never asked")]
    async with deck.recording(script) as recorder:
        recorded = [await ask(recorder), await ask(recorder, wrong)]
    async with deck.replaying() as player:
        replayed = [await ask(player), await ask(player, wrong)]
    assert [answer.status for answer in recorded] == [503, 422]
    assert [(a.status, a.body) for a in replayed] == [(a.status, a.body) for a in recorded]


async def test_ids_of_earlier_turns_do_not_matter_but_their_order_does(deck: Deck) -> None:
    def turn(first: str, second: str) -> dict[str, Any]:
        calls = [call("add", call_id=first, n=1), call("add", call_id=second, n=2)]
        results = [
            {"type": "function_call_output", "call_id": first, "output": "1"},
            {"type": "function_call_output", "call_id": second, "output": "2"},
        ]
        return {"input": [*QUESTION["input"], *calls, *results]}

    crossed = turn("a", "b")
    crossed["input"][-1]["call_id"], crossed["input"][-2]["call_id"] = "a", "b"
    async with deck.recording() as recorder:
        recorded = said(await ask(recorder, turn("call_1", "call_2")))
    async with deck.replaying() as player:
        assert said(await ask(player, turn("call_x", "call_y"))) == recorded
        assert (await ask(player, crossed)).status == 422


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            {**QUESTION, "temperature": 0.5},
            "All messages are the same, `temperature` differs: recorded 1.0, now 0.5",
        ),
        (
            {"input": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 1.0},
            "Message 1 (user) differs: content: recorded 'What is 2 + 2?', now 'What is 2 + 3?'",
        ),
        (
            {"input": [*QUESTION["input"], {"role": "user", "content": "And?"}], "temperature": 1.0},
            "Message 2 of 2 is new: 'And?'",
        ),
        ({"input": [], "temperature": 1.0}, "Message 1 of the recorded ones is missing: 'What is 2 + 2?'"),
    ],
)
async def test_a_miss_says_which_message_or_parameter_differs(deck: Deck, body: Any, why: str) -> None:
    async with deck.recording() as recorder:
        await ask(recorder, rollout="7-0")
    async with deck.replaying() as player:
        missed = await ask(player, body, rollout="7-0")
    assert missed.status == 422
    assert why in missed.json()["detail"]
    assert "(nearest: rollout 7-0)" in missed.json()["detail"]


async def test_long_texts_are_cut_to_where_they_part(deck: Deck) -> None:
    long = "x" * 5_000
    async with deck.recording() as recorder:
        await ask(recorder, {"input": f"{long} left {long}"})
    async with deck.replaying() as player:
        detail = (await ask(player, {"input": f"{long} right {long}"})).json()["detail"]
    assert "left" in detail and "right" in detail and len(detail) < 500


async def test_an_attempt_that_was_not_recorded_is_told_apart_from_another_request(deck: Deck) -> None:
    async with deck.recording() as recorder:
        await ask(recorder, rollout="0-0")
    async with deck.replaying() as player:
        detail = (await ask(player, rollout="0-1")).json()["detail"]
        assert "rollout 0-1 is not in the cassette" in detail
        assert "recorded for rollout 0-0" in detail


async def test_another_place_in_the_dataset_and_a_repeated_attempt_find_their_answers(deck: Deck) -> None:
    async with deck.recording() as recorder:
        recorded = said(await ask(recorder, rollout="3-1"))
    async with deck.replaying() as player:
        assert said(await ask(player, rollout="0-1")) == recorded
        assert said(await ask(player, rollout="3-1-a2")) == recorded
        assert (await ask(player, rollout="3-2")).status == 422


async def test_on_miss_live_asks_the_model_and_writes_nothing(deck: Deck) -> None:
    async with deck.recording() as recorder:
        recorded = said(await ask(recorder))
    before = deck.file.read_bytes()
    async with (
        ScriptedModel([message("live")], name="live") as model,
        deck.replaying(model, on_miss="live", model_server=LIVE) as player,
    ):
        assert said(await ask(player)) == recorded
        assert said(await ask(player, {"input": "else"})) == "live"
    assert deck.file.read_bytes() == before


async def test_on_miss_mock_says_so_in_every_dialect(deck: Deck) -> None:
    async with deck.recording() as recorder:
        await ask(recorder)
    async with deck.replaying(on_miss="mock") as player:
        for path, body in (("/v1/responses", {"input": "x"}), ("/v1/chat/completions", CHAT)):
            answer = await ask(player, body, path=path)
            assert answer.status == 200 and b"not in the cassette" in answer.body


async def test_a_recording_that_was_killed_goes_on_and_pays_for_nothing_twice(deck: Deck) -> None:
    other = {"input": "second turn"}
    async with deck.recording() as recorder:
        first = said(await ask(recorder))
    whole = deck.file.read_bytes()
    deck.file.write_bytes(whole + b'{"answer":"torn')
    async with deck.recording() as recorder:
        assert said(await ask(recorder)) == first
        second = said(await ask(recorder, other))
        third = said(await ask(recorder))
    assert [body["input"] for body in deck.asked[1:]] == ["second turn", QUESTION["input"]]
    async with deck.replaying() as player:
        assert [said(await ask(player, body)) for body in (QUESTION, other, QUESTION)] == [
            first,
            second,
            third,
        ]


async def test_a_recorded_failure_is_asked_again_and_replaced(deck: Deck) -> None:
    async with deck.recording([fault(500)]) as recorder:
        assert (await ask(recorder)).status == 500
    async with deck.recording([message("better")]) as recorder:
        assert said(await ask(recorder)) == "better"
    async with deck.replaying() as player:
        assert said(await ask(player)) == "better"


async def test_no_secret_and_no_header_is_in_the_file(deck: Deck) -> None:
    secret = 'sk-"planted"\\4711'
    script = [message(f"Your key is {secret}, isn't it?"), message(f"again {secret}")]
    body = {"input": f"my key is {secret}"}
    async with deck.recording(script, secrets=[secret]) as recorder:
        headers = {"authorization": "Bearer sk-of-the-caller", "x-session-id": "session-77"}
        await recorder.post("/ng-rollout/0-0/v1/responses", body, headers=headers)
        await ask(recorder, {**body, "stream": True})
    text = deck.file.read_text("utf-8")
    for form in ("planted", "4711", "of-the-caller", "session-77"):
        assert form not in text
    assert text.count("****") >= 3
    for line in text.splitlines():
        json.loads(line)


async def test_what_json_parsers_disagree_about_comes_back_as_it_was(deck: Deck) -> None:
    from starlette.responses import Response

    body = b'{ "output": [], "n": 123456789012345678901234567890, "x": NaN, "half": "\\ud83d", "f": 1.0E5 }'
    async with deck.recording([Response(body, media_type="application/json")]) as recorder:
        assert (await ask(recorder)).body == body
    async with deck.replaying() as player:
        assert (await ask(player)).body == body


async def test_a_file_that_is_no_cassette_is_refused(deck: Deck) -> None:
    from gymctl.errors import PrerequisiteError

    deck.file.write_text('{"reward": 1.0}\n')
    with pytest.raises(PrerequisiteError, match="no cassette"):
        async with deck.replaying():
            pass
