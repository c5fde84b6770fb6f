"""How many rollouts run at once, against a provider with a hidden limit; the clock is simulated."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.metrics.outcomes import outcome
from gymctl.rollouts.governor import LONGEST_ASKED_SECONDS, REFUSALS_TO_PROBE, Governor, overload

PROVIDER = "policy_model/api.example.com/v1/responses"


@dataclass
class Simulation:
    """Rollouts are sent whenever the governor lets them; the provider refuses those beyond its limit."""

    governor: Governor
    limit: Callable[[float], int]
    seconds: float = 1.0
    asked: float = 0.0
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    def run(self, until: float) -> Simulation:
        governor, now, busy, count = self.governor, 0.0, 0, 0
        ends: list[tuple[float, int, int, bool]] = []
        while now < until:
            while governor.admits(now):
                count += 1
                ticket, is_served = governor.sent(), busy < self.limit(now)
                busy += is_served
                length = self.seconds * random.uniform(0.5, 1.5) if is_served else 0.01
                heapq.heappush(ends, (now + length, count, ticket, is_served))
                self.sent.append(now)
            if now < governor.resumes_at < (ends[0][0] if ends else float("inf")):
                now = governor.resumes_at
                continue
            now, _, ticket, is_served = heapq.heappop(ends)
            busy -= is_served
            if is_served:
                governor.answered(ticket)
                self.answered.append(now)
            else:
                governor.refused(ticket, now, self.asked)
                self.refused.append(now)
        return self

    def between(self, times: list[float], start: float, end: float) -> int:
        return sum(start <= time < end for time in times)


@pytest.fixture(autouse=True)
def seed() -> None:
    random.seed(7)


@pytest.mark.parametrize(("ceiling", "hidden"), [(64, 20), (64, 4), (200, 100), (16, 1), (32, 32), (300, 40)])
def test_a_hidden_limit_is_found_and_used_to_nine_tenths_with_few_refusals(ceiling: int, hidden: int) -> None:
    """PRODUCT 3.14: at least 90 % of the limit with under 2 % of refusals after warm-up."""
    played = Simulation(Governor(ceiling), lambda now: hidden).run(600)
    answered = played.between(played.answered, 60, 600)
    refused = played.between(played.refused, 60, 600)
    assert answered / (540 * hidden) >= 0.9
    assert refused / (answered + refused) < 0.025


def test_it_recovers_within_thirty_seconds_when_the_limit_halves() -> None:
    played = Simulation(Governor(64), lambda now: 20 if now < 100 else 10).run(200)
    assert played.between(played.answered, 130, 190) / 60 >= 9
    assert played.between(played.refused, 130, 190) <= 0.03 * played.between(played.answered, 130, 190)


def test_it_finds_a_limit_that_has_grown() -> None:
    played = Simulation(Governor(64), lambda now: 10 if now < 100 else 40).run(300)
    assert played.between(played.answered, 200, 300) / 100 >= 36


def test_a_dead_provider_is_asked_fewer_than_twenty_times_in_a_minute_and_taken_up_again() -> None:
    played = Simulation(Governor(8), lambda now: 0 if 10 < now < 70 else 8).run(240)
    assert 5 < len(played.refused) < 20
    assert played.governor.limit == 8
    assert played.between(played.answered, 180, 240) / 60 >= 7


def test_one_that_refuses_all_is_probed_by_one_rollout_at_a_time() -> None:
    governor = Governor(10)
    tickets = [governor.sent() for _ in range(10)]
    for ticket in tickets[:REFUSALS_TO_PROBE]:
        governor.refused(ticket, 0.0)
    now = governor.resumes_at
    assert governor.is_probing
    probe = governor.sent()
    assert not governor.admits(now)
    governor.answered(probe)
    assert not governor.is_probing
    for ticket in tickets[REFUSALS_TO_PROBE:]:
        governor.answered(ticket)
    assert governor.admits(now)


def test_a_long_rollout_that_fails_otherwise_makes_room_for_the_next_probe() -> None:
    governor = Governor(10)
    for ticket in [governor.sent() for _ in range(10)]:
        governor.refused(ticket, 0.0)
    governor.left(governor.sent())
    assert governor.admits(governor.resumes_at)


@given(asked=st.floats(0, 1e300), others=st.integers(0, 20))
def test_nothing_is_sent_before_retry_after_is_over(asked: float, others: int) -> None:
    governor = Governor(64)
    tickets = [governor.sent() for _ in range(others + 1)]
    governor.refused(tickets[-1], 100.0, asked)
    for ticket in tickets[:-1]:
        governor.answered(ticket)
    wait = min(asked, LONGEST_ASKED_SECONDS)
    assert not governor.admits(100.0 + wait * 0.999)
    assert governor.admits(100.0 + wait * 1.26 + 1)


def test_b73_retry_after_is_obeyed_with_spread_over_all_rollouts() -> None:
    """BUG_CASES B73."""
    played = Simulation(Governor(32), lambda now: 0 if now < 3.5 else 32, asked=3.0).run(30)
    first = max(time for time in played.refused if time < 1)
    assert not [time for time in played.sent if first < time < first + 3.0]


@settings(max_examples=60, deadline=None)
@given(
    ceiling=st.integers(1, 50),
    events=st.lists(st.tuples(st.sampled_from(["ask", "answer", "refuse", "leave"]), st.integers(0, 60))),
)
def test_the_limit_stays_between_one_and_the_ceiling_whatever_happens(
    ceiling: int, events: list[tuple[str, int]]
) -> None:
    governor, open_tickets, now = Governor(ceiling), [], 0.0
    for what, amount in events:
        now += amount
        if what == "ask" and governor.admits(now):
            open_tickets.append(governor.sent())
        elif open_tickets and what != "ask":
            ticket = open_tickets.pop(amount % len(open_tickets))
            if what == "answer":
                governor.answered(ticket)
            elif what == "refuse":
                governor.refused(ticket, now)
            else:
                governor.left(ticket)
        assert 1 <= governor.limit <= ceiling
        assert governor.in_flight == len(open_tickets) <= ceiling
    for ticket in open_tickets:
        governor.left(ticket)
    assert governor.admits(max(now, governor.resumes_at))  # never stuck for good


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"_ng_failure_call": f"{PROVIDER} 429", "gymctl_retry_after": 3.0},
            3.0,
        ),
        ({"_ng_failure_call": f"{PROVIDER} 529"}, 0.0),
        ({"_ng_failure_call": f"{PROVIDER} transport_unreachable"}, 0.0),
        ({"_ng_failure_call": f"{PROVIDER} 401"}, None),
        ({"_ng_failure_call": "tools:8000/get_weather 429"}, None),
        ({"_ng_failure_http_status": 429}, 0.0),
        ({"_ng_failure_stage": "admission"}, 0.0),
        ({"failure_kind": "transport_peer_drop"}, None),
        ({"failure_kind": "judge_failed", "_ng_failure_call": f"{PROVIDER} 429"}, 0.0),
        ({"_ng_failure_stage": "verification", "_ng_failure_call": "tools:8000/verify 503"}, None),
    ],
)
def test_what_counts_as_too_much_at_once(record: dict[str, object], expected: float | None) -> None:
    full = {"_ng_failure_class": "agent_run_error", "_ng_failure_http_status": 500, **record}
    assert overload(full, outcome(full, {"policy_model"})) == expected
