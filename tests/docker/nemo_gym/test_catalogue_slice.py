"""Five servers of NeMo Gym's catalogue, unmodified in containers (all of them: `make test-peer`).

And one that is written for the test on NeMo Gym's SDK: what it gets in its container, and what it must not
show. One file: its project has 32 containers, which are up as long as its tests run.
"""

from __future__ import annotations

from typing import Any

import pytest
import requests
from peer.recorded import Recorded, lines, rollouts, same_prompt, scripted, tasks, turns
from peer.replay import judge_all
from peer.setup import KIND
from peer.slice import LARGE, SECRET, SERVERS, Server, Slice, docker

from gymctl.paths import bundled

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("one", SERVERS, ids=lambda one: one.name)
def test_recorded_rollouts_get_their_recorded_rewards(up: Slice, one: Server) -> None:
    known = rollouts(up.data(one.name))
    judged = judge_all(up.urls[one.server], known)
    differ = {
        each.recorded.row: (each.recorded.reward, each.reward, each.reason)
        for each in judged
        if not each.is_equal
    }
    assert len(judged) == 5
    assert set(differ) == one.known_to_differ, differ


def asked(up: Slice, agent: str, name: str) -> list[tuple[dict[str, Any], Recorded | None]]:
    """The example rows of a server, each with what the recorded model said as its script."""
    known = rollouts(up.data(name))
    found = [(row, same_prompt(row, known)) for row in tasks(up.data(name))[:5]]
    return [
        ({**scripted(row, turns(one.output) if one else []), "agent_ref": {"name": agent}}, one)
        for row, one in found
    ]


@pytest.mark.parametrize("side", ["agent", "ours"])
def test_example_rows_are_run_through_their_agents_and_ours(up: Slice, side: str) -> None:
    wanted = [(server, *each) for server in SERVERS for each in asked(up, getattr(server, side), server.name)]
    records = up.eval([row for _, row, _ in wanted], side)
    assert len(records) == len(wanted) == 25
    for (server, row, known), record in zip(wanted, records, strict=True):
        assert record["agent_ref"]["name"] == row["agent_ref"]["name"]
        if known is not None and known.row not in server.known_to_differ:
            assert record["reward"] == pytest.approx(known.reward, abs=1e-9), (server.name, known.row)
    assert {server.name for server, _, known in wanted if known is not None} == {one.name for one in SERVERS}


def test_their_agent_calls_the_tools_of_our_resources_server(up: Slice) -> None:
    rows = lines(bundled() / "benchmarks" / "weather" / "data" / "weather.jsonl")[:5]
    records = up.eval([{**row, "agent_ref": {"name": "weather_simple_agent"}} for row in rows], "weather")
    [oslo, *others] = [_outputs(record) for record in records]
    assert "snow" in oslo[0]
    assert [len(outputs) for outputs in others] == [1, 1, 1, 1]
    assert [record["reward"] for record in records] == [1.0] * 5


def _outputs(record: dict[str, Any]) -> list[str]:
    items = record["response"]["output"]
    return [one["output"] for one in items if one["type"] == "function_call_output"]


def test_each_runs_in_its_own_container_and_shows_its_profile(up: Slice) -> None:
    profiles = {one["server"]: one["profile"] for one in up.listed}
    for one in SERVERS:
        assert (profiles[one.server], profiles[one.agent], profiles[one.ours]) == (
            "compat",
            "compat",
            "closed",
        )
    assert profiles["weather"] == profiles["policy_model"] == "closed"
    assert profiles["root_diary"] == "compat, root"
    containers = [one["container"] for one in up.listed]
    assert len({*containers}) == len(containers)
    assert {one["kind"] for one in up.listed} >= {KIND, "environment_servers"}


def told(up: Slice, server: str) -> dict[str, Any]:
    answer = requests.post(f"{up.urls[server]}/write", timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_configuration_larger_than_an_environment_variable_arrives(up: Slice) -> None:
    assert told(up, "diary")["length"] == LARGE


def test_a_server_may_write_beside_its_code(up: Slice) -> None:
    answer = told(up, "diary")
    assert (answer["wrote"], answer["uid"] == 0) == ("dear diary", False)


def test_a_server_runs_as_root_where_its_block_says_so(up: Slice) -> None:
    assert told(up, "root_diary")["uid"] == 0


def test_a_key_reaches_the_server_and_is_seen_nowhere_else(up: Slice) -> None:
    assert told(up, "diary")["key"] == SECRET
    containers = docker("ps", "-aq", "--filter", f"label=dev.gymctl.project={up.project}").split()
    images = {one["image"] for one in up.listed}
    texts = [docker("inspect", *containers), docker("image", "inspect", *images)]
    texts += [docker("history", "--no-trunc", image) for image in images]
    texts += [docker("logs", container) for container in containers]
    texts += [requests.get(f"{up.urls['head']}/global_config_dict_yaml", timeout=60).text]
    assert len(containers) == len(up.listed)
    assert [text for text in texts if SECRET in text] == []
