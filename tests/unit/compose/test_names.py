from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gymctl.compose.names import HEAD, legal, service_names

LEGAL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
AWKWARD = st.text(alphabet="aA1_-. é", min_size=0, max_size=70)


@given(st.lists(st.one_of(st.text(max_size=80), AWKWARD), max_size=12))
def test_service_names_are_unique_and_legal_whatever_the_ids(ids: list[str]) -> None:
    names = service_names(ids)
    assert set(names) == set(ids)
    assert len(set(names.values())) == len(names)
    assert HEAD not in names.values()
    assert all(LEGAL.fullmatch(name) for name in names.values())


@given(st.lists(AWKWARD, max_size=8, unique=True))
def test_a_service_name_does_not_depend_on_the_order_of_the_config(ids: list[str]) -> None:
    assert service_names(ids) == service_names(list(reversed(ids)))


def test_names_stay_close_to_their_ids() -> None:
    assert service_names(["weather_agent", "policy_model"]) == {
        "weather_agent": "weather-agent",
        "policy_model": "policy-model",
    }


def test_ids_that_would_collide_get_a_hash_each() -> None:
    names = service_names(["a_b", "a-b", "head"])
    assert re.fullmatch(r"a-b-[0-9a-f]{6}", names["a_b"])
    assert re.fullmatch(r"a-b-[0-9a-f]{6}", names["a-b"])
    assert re.fullmatch(r"head-[0-9a-f]{6}", names["head"])


def test_numbers_do_not_become_ip_addresses() -> None:
    assert legal("1") == "s-1"
    assert legal("0x7f") == "s-0x7f"
