"""When an upstream is asked again, and when never."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gymctl.servers.models.endpoints import endpoints
from gymctl.servers.models.upstream import Upstream, is_refused_for_good, pause
from gymctl.transport import Answer, Transport, TransportError, TransportKind


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.5),
        ("", 0.5),
        ("0", 0.5),
        ("2", 2.0),
        ("1.5", 1.5),
        ("3600", 30.0),
        ("-4", 0.5),
        ("nan", 0.5),
        ("soon", 0.5),
        ("Thu, 01 Jan 1970 00:00:07 GMT", 5.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.5),
    ],
)
def test_retry_after_is_honoured_within_reason(header: str | None, seconds: float):
    assert seconds <= pause(header, now=2.0) <= seconds * 1.25


def test_13_2_each_pause_is_twice_the_one_before_and_no_two_calls_pause_alike():
    for attempt, seconds in ((1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (5000, 30.0)):
        pauses = {pause(None, attempt) for _ in range(50)}
        assert seconds <= min(pauses) < max(pauses) <= seconds * 1.25
    assert pause("20", attempt=2) >= 20
    assert pause("0.1", attempt=3) >= 2


@pytest.mark.parametrize(
    ("status", "error", "is_final"),
    [
        (429, {"code": "insufficient_quota"}, True),
        (429, {"type": "budget_exceeded"}, True),
        (429, {"code": "rate_limit_exceeded"}, False),
        (401, {"code": "invalid_api_key"}, True),
        (403, {"type": "authentication_error"}, True),
        (401, {"message": "Incorrect API key provided"}, True),
        (403, {"message": "this model is not in your plan"}, False),
        (500, {"code": "invalid_api_key"}, False),
    ],
)
def test_only_a_bad_key_or_a_spent_quota_is_final(status: int, error: dict, is_final: bool):
    assert is_refused_for_good(Answer(status, (), json.dumps({"error": error}).encode(), "u")) is is_final


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": null}', b'{"error": "text"}', b"\xff"])
def test_an_odd_error_body_is_not_final(body: bytes):
    assert not is_refused_for_good(Answer(401, (), body, "u"))


def test_endpoints_are_the_keys_that_end_in_base_url():
    settings = {
        "base_url": ["http://a/v1", "", "http://b/v1"],
        "judge_base_url": "http://a/v1",
        "other_base_url": None,
        "base_url_note": "http://c",
        "port": 3,
    }
    assert endpoints(settings) == [("base_url", "http://a/v1"), ("base_url", "http://b/v1")]


async def test_our_own_lack_of_sockets_says_nothing_of_the_upstream():
    """It is given up all the same when its time is over, and not taken for back."""
    kinds: list[TransportKind] = ["transport_unreachable", "transport_local_resource"]

    class Failing(Transport):
        async def call(self, method: str, url: str, *args: Any, **options: Any) -> Answer:
            raise TransportError(kinds[0] if len(kinds) == 1 else kinds.pop(0), url, "no")

    upstream = Upstream(Failing(), "http://model/v1", max_attempts=1, unreachable_seconds=0.0)
    with pytest.raises(TransportError, match="has not been reachable"):
        await upstream.post("/responses", b"{}")
    upstream._breaker._next_look = 0.0
    with pytest.raises(TransportError, match="transport_local_resource"):
        await upstream.post("/responses", b"{}")
    assert upstream._breaker.is_open
