"""Waited for, given up, looked for by one call at a time, and back."""

from __future__ import annotations

from gymctl.servers.models.breaker import PROBE_SECONDS, Breaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_server_that_is_reached_is_never_given_up():
    clock = Clock()
    breaker = Breaker(60, clock)
    assert breaker.admits() and not breaker.reached()
    clock.now += 10_000
    assert breaker.admits() and not breaker.is_open and breaker.seconds_left == 60


def test_it_is_given_up_after_its_time_whoever_asks():
    clock = Clock()
    breaker = Breaker(60, clock)
    assert breaker.missed() is True
    clock.now += 59
    assert breaker.missed() is False
    assert breaker.admits() and breaker.seconds_left == 1
    clock.now += 1
    assert breaker.is_open and not breaker.admits()


def test_then_one_call_at_a_time_looks_whether_it_is_back():
    clock = Clock()
    breaker = Breaker(10, clock)
    breaker.missed()
    clock.now += 10 + PROBE_SECONDS
    assert breaker.admits()
    assert not breaker.admits(), "a second call while the first one looks"
    breaker.missed()
    assert not breaker.admits(), "right after a look"
    clock.now += PROBE_SECONDS
    assert breaker.admits()
    assert breaker.reached() is True
    assert breaker.admits() and breaker.admits() and not breaker.is_open


def test_a_look_whose_caller_left_lets_the_next_one_look():
    clock = Clock()
    breaker = Breaker(0, clock)
    breaker.missed()
    clock.now += PROBE_SECONDS
    assert breaker.admits()
    breaker.left()
    assert breaker.admits()


def test_with_no_patience_the_first_miss_gives_up():
    breaker = Breaker(0, Clock())
    assert breaker.admits() and not breaker.is_open
    breaker.missed()
    assert breaker.is_open
