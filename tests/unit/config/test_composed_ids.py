"""Ids of the agents and relays that a configuration does not write itself (CONTRACT 1.16)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.config.tree.agents import composed_id, relay_id

NAMES = st.text("ab_", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("old", "implementation", "new", "composed"),
    [
        ("trivia_simple_agent", "simple_agent", "hermes_agent", "trivia_hermes_agent"),
        ("triviasimple_agent", "simple_agent", "hermes_agent", "trivia_hermes_agent"),
        ("support_agent", "simple_agent", "hermes_agent", "support_hermes_agent"),
        ("xyz", "simple_agent", "hermes_agent", "xyz_hermes_agent"),
        ("simple_agent", "simple_agent", "hermes_agent", "hermes_agent"),
        ("trivia_simple_agent", "simple_agent", "simple_agent", "trivia_simple_agent"),
    ],
)
def test_new_ids(old, implementation, new, composed) -> None:
    assert composed_id(old, implementation, new) == composed


@given(NAMES, NAMES, NAMES, st.sets(NAMES))
def test_the_id_rules_hold_for_any_names(agent, implementation, new, names) -> None:
    composed = composed_id(agent, implementation, new)
    assert composed == new or composed.endswith(f"_{new}")
    assert composed_id(f"{agent.rstrip('_') or 'x'}x_{implementation}", implementation, new).startswith(
        (agent.rstrip("_") or "x") + "x_"
    )
    taken = {f"{name}_environment_server" for name in names}
    relay = relay_id(agent, implementation, taken)
    assert relay not in taken
    assert relay.endswith("_environment_server")
