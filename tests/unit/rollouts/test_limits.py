"""Caps of a run, and what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.errors import ConfigError
from gymctl.metrics.outcomes import Outcome
from gymctl.metrics.tally import Tally
from gymctl.metrics.usage import Usage
from gymctl.rollouts.limits import MOST_DURATIONS, Caps, Clock, Durations
from gymctl.rollouts.prices import Prices, Pricing

PRICES = "date: 2026-11-02\nmodels:\n  luna-4: {input: 2.5, cached_input: 0.25, output: 10}\n"


def record(read: int, written: int, cached: int = 0, model: str | None = None) -> dict[str, object]:
    usage = {
        "input_tokens": read,
        "output_tokens": written,
        "input_tokens_details": {"cached_tokens": cached},
    }
    return {"reward": 1.0, "response": {"usage": usage, "model": model}}


def prices(tmp_path: Path, text: str = PRICES) -> Prices:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return Prices.load(path)


def test_time_and_tokens_end_a_run_when_they_are_reached() -> None:
    clock, tally = Clock(Caps(seconds=60, tokens=100)), Tally()
    clock.start(1000.0)
    assert (clock.reached(1059.9, tally), clock.ends_at) == (None, 1060.0)
    assert clock.reached(1060.0, tally) == "--max-time"
    tally.add({}, Outcome(1.0), record(80, 19))
    assert clock.reached(1001.0, tally) is None
    tally.retry(record(1, 0))
    assert clock.reached(1001.0, tally) == "--max-tokens"


def test_cost_ends_a_run_when_it_is_reached(tmp_path: Path) -> None:
    tally = Tally(price=Pricing(prices(tmp_path), "luna-4"))
    clock = Clock(Caps(cost=1.0))
    tally.add({}, Outcome(1.0), record(100_000, 70_000, model="luna-4-2026-10-01"))
    assert tally.cost == pytest.approx(0.95)
    assert clock.reached(0.0, tally) is None
    tally.add({}, Outcome(1.0), record(20_000, 0))
    assert clock.reached(0.0, tally) == "--max-cost"


def test_the_dispatch_margin_is_the_upper_quartile_after_five_rollouts() -> None:
    clock = Clock(Caps(dispatch_seconds=100))
    clock.start(0.0)
    for seconds in (1, 2, 3, 4):
        clock.ended(seconds)
    assert clock.ends_at == 100
    for seconds in (50, 6, 7, 8):
        clock.ended(seconds)
    assert clock.ends_at == 100 - 8
    assert clock.reached(92.0, Tally()) == "dispatch_budget_s"
    assert Clock(Caps(dispatch_seconds=100, drain_margin=30)).ends_at == 70


@given(st.lists(st.floats(0, 1e6), min_size=5, max_size=600))
def test_durations_keep_the_last_ones_in_constant_memory(seconds: list[float]) -> None:
    durations = Durations()
    for value in seconds:
        durations.add(value)
    last = sorted(seconds[-MOST_DURATIONS:])
    assert durations.upper_quartile == last[min(int(len(last) * 0.75), len(last) - 1)]


def test_a_rollout_that_used_more_than_it_may_is_named() -> None:
    caps = Caps(rollout_tokens=10, rollout_cost=0.5)
    assert caps.passed_by(Usage(6, 0, 4), 0.5) == []
    assert caps.passed_by(Usage(7, 0, 4), 0.6) == ["tokens", "cost"]
    assert caps.passed_by(None, None) == []


def test_a_cost_by_hand(tmp_path: Path) -> None:
    pricing = Pricing(prices(tmp_path))
    usage = Usage(input=1_000_000, cached=600_000, output=100_000)
    assert pricing(record(0, 0, model="luna-4"), usage) == pytest.approx(0.4 * 2.5 + 0.6 * 0.25 + 0.1 * 10)
    assert pricing(record(0, 0, model="other"), usage) is None
    assert Pricing()(record(0, 0, model="luna-4"), usage) is None


def test_cached_tokens_without_a_price_of_their_own_cost_what_others_cost(tmp_path: Path) -> None:
    made = prices(tmp_path, "date: 2026-11-02\nmodels: {m: {input: 2, output: 0}}\n")
    assert made.models["m"].of(Usage(1_000_000, 500_000, 7)) == 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: {}", "date"),
        ("date: today\nmodels: {}", "date"),
        ("date: 2026-11-02\nmodels: {m: {input: -1, output: 1}}", "models.m.input"),
        ("date: 2026-11-02\nmodels: {m: {input: .nan, output: 1}}", "models.m.input"),
        ("date: 2026-11-02\nmodels: {m: {input: true, output: 1}}", "models.m.input"),
        ("date: 2026-11-02\nmodels: {m: {input: 1}}", "models.m.output"),
        ("date: 2026-11-02\nmodels: {m: {input: 1, output: 1, cached: 1}}", "models.m.cached"),
        ("[", "prices.yaml:1"),
        ("", "the file"),
    ],
)
def test_a_price_file_that_says_nonsense_is_refused_by_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        prices(tmp_path, text)
    assert expected in str(error.value)
    assert "prices.yaml" in str(error.value)


def test_usage_that_is_no_number_is_none() -> None:
    assert Usage.of({"response": {"usage": {"input_tokens": "many"}}}) is None
    assert Usage.of({"response": None}) is None
    assert Usage.of(record(5, 1, cached=9)) == Usage(5, 5, 1)
    assert Usage.of({"_ng_failure_partial_response": record(5, 1)["response"]}) == Usage(5, 0, 1)


def test_a_tally_counts_retries_and_what_has_no_price(tmp_path: Path) -> None:
    tally = Tally(price=Pricing(prices(tmp_path)))
    tally.plan(0, 2)
    tally.retry(record(100, 10, model="luna-4"))
    tally.add({}, Outcome(1.0), record(100, 10, model="other"))
    tally.add({}, Outcome(1.0), {"response": {}})
    assert (tally.retried, tally.retried_tokens, tally.unpriced, tally.unmetered) == (1, 110, 1, 1)
    assert tally.usage.total == 220
    assert tally.finished == 2


def test_a_retry_that_is_not_made_any_more_leaves_its_failure() -> None:
    tally = Tally()
    tally.plan(0)
    tally.retry(record(100, 10))
    tally.give_up({}, Outcome(None, "model", "why"))
    assert (tally.retried, dict(tally.failed), tally.usage.total) == (0, {"model": 1}, 110)
