"""Indices, repeats and routes of CONTRACT 9.3-9.4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.rollout import rollout_key
from gymctl.contract.servers import Address, ServerEntry, ServerKind, ServerTable
from gymctl.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
    UsageError,
)
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.expand import Plan, rollout_id
from gymctl.rollouts.route import Router, Routing, depends_on


def entry(name: str, kind: ServerKind, datasets: Any = (), **references: str) -> ServerEntry:
    address = Address(kind=kind, implementation="x", host="127.0.0.1", port=1)
    return ServerEntry(name=name, address=address, references=references, datasets=tuple(datasets))


def table(*entries: ServerEntry) -> ServerTable:
    return ServerTable(servers={server.name: server for server in entries})


DESK = (
    entry("policy", "responses_api_models"),
    entry("tools", "resources_servers"),
    entry("desk", "responses_api_agents", resources_server="tools", model_server="policy"),
    entry("desk_env", "environment_servers", agent_server="desk"),
)


def plan(path: Path, lines: list[str], servers: ServerTable | None = None, **options: Any) -> Plan:
    path.write_text("\n".join(lines))
    source = Source(path, **{key: options.pop(key) for key in ("declared_by", "fallback") if key in options})
    if "dataset_repeats" in options:
        source = Source(path, repeats=options.pop("dataset_repeats"))
    agent = options.pop("agent", None)
    routing = options.pop("routing", None) or Routing(agent_map={"_default": agent} if agent else {})
    router = Router(servers or table(*DESK), routing)
    return Plan([source], router, **options)


def row(text: str = "hi", **more: Any) -> str:
    return json.dumps({"responses_create_params": {"input": text}, "agent_ref": {"name": "desk"}, **more})


def keys(made: Plan) -> list[tuple[int, int]]:
    return [rollout_key(attempt.row) for attempt in made.attempts()]


def test_identical_lines_share_a_task_and_continue_its_counter(tmp_path: Path) -> None:
    made = plan(tmp_path / "r", [row("a"), row("b"), row("a")], repeats=2)
    assert keys(made) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
    assert made.check().tasks == {0: 4, 1: 2}


def test_lines_that_differ_in_a_space_are_two_tasks(tmp_path: Path) -> None:
    assert keys(plan(tmp_path / "r", [row("a"), row("a") + " "])) == [(0, 0), (1, 0)]


def test_the_callers_task_index_is_kept(tmp_path: Path) -> None:
    made = plan(tmp_path / "r", [row("a", _ng_task_index=7), row("b"), row("c", _ng_task_index=7)])
    assert keys(made) == [(7, 0), (1, 0), (7, 1)]


def test_ids_do_not_change_with_the_limit(tmp_path: Path) -> None:
    lines = [row("a"), row("b"), row("a"), row("c")]
    whole = keys(plan(tmp_path / "r", lines, repeats=2))
    assert keys(plan(tmp_path / "r", lines, repeats=2, limit=3)) == whole[:6]


def test_dataset_and_run_repeats_multiply(tmp_path: Path) -> None:
    assert keys(plan(tmp_path / "r", [row()], repeats=2, dataset_repeats=3)) == [(0, i) for i in range(6)]


@pytest.mark.parametrize("repeats", [0, -1])
def test_repeats_start_at_one(tmp_path: Path, repeats: int) -> None:
    with pytest.raises(UsageError):
        plan(tmp_path / "r", [row()], repeats=repeats)


def test_sampling_flags_are_laid_over_the_rows(tmp_path: Path) -> None:
    made = plan(tmp_path / "r", [row()], params={"temperature": 0.5})
    assert next(made.attempts()).row["responses_create_params"] == {"input": "hi", "temperature": 0.5}


def test_rollout_ids() -> None:
    assert rollout_id({"_ng_task_index": 3, "_ng_rollout_index": 1}) == "3-1"
    assert rollout_id({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}) == "3-1-a2"
    assert rollout_id({"_ng_rollout_id": "mine", "_ng_attempt_index": 1}) == "mine-a1"


def test_a_callers_rollout_id_that_is_repeated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two rollouts would have the id `x`"):
        plan(tmp_path / "r", [row(_ng_rollout_id="x")], repeats=2).check()


def test_a_declared_dataset_names_its_instance_instead_of_an_agent(tmp_path: Path) -> None:
    line = json.dumps({"responses_create_params": {"input": "x"}, "agent_ref": {"name": "gone"}})
    attempt = next(plan(tmp_path / "r", [line], declared_by="tools").attempts())
    assert (attempt.row["task_source"], attempt.row["agent_ref"]) == ("tools", {"name": "desk"})
    assert attempt.route.server == "desk_env"


def test_a_fallback_serves_only_rows_that_name_nobody(tmp_path: Path) -> None:
    anonymous = json.dumps({"responses_create_params": {"input": "x"}})
    first, second = plan(tmp_path / "r", [anonymous, row()], fallback="tools").attempts()
    assert first.row["task_source"] == "tools"
    assert "task_source" not in second.row


def test_the_agent_flag_sends_every_row(tmp_path: Path) -> None:
    servers = table(
        *DESK, entry("b", "responses_api_agents"), entry("b_env", "environment_servers", agent_server="b")
    )
    made = plan(tmp_path / "r", [row(), row("y", agent_ref={"name": "b"})], servers, agent="b")
    assert [attempt.route.server for attempt in made.attempts()] == ["b_env", "b_env"]
    assert made.check().rerouted == {("desk", "b"): 1}
    assert all(attempt.row["agent_ref"] == {"name": "b"} for attempt in made.attempts())


def test_all_rows_without_a_route_are_listed_with_their_lines(tmp_path: Path) -> None:
    anonymous = json.dumps({"responses_create_params": {"input": "x"}})
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path / "r", [anonymous, row(), row("z", agent_ref={"name": "desc"})]).check()
    assert caught.value.what == "2 rows cannot be used"
    assert caught.value.details == (
        f"{tmp_path}/r:1: this row names no agent: it has neither `agent_ref` nor `task_source`",
        f"{tmp_path}/r:3: there is no agent `desc`",
    )


def test_a_materialized_row_needs_a_route(tmp_path: Path) -> None:
    line = {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}}
    with pytest.raises(ConfigError, match="no route for the taskset `t`"):
        plan(tmp_path / "r", [json.dumps(line)]).check()
    stamped = json.dumps({**line, "_ng_environment_server": "desk_env"})
    assert plan(tmp_path / "r", [stamped]).check().servers == {"desk_env": {"desk"}}


def test_a_stamped_row_keeps_its_agent_if_that_server_fronts_it(tmp_path: Path) -> None:
    user = entry("user", "responses_api_agents")
    both = entry("both", "environment_servers", agent_server="desk", user_agent="user")
    other = entry("other", "responses_api_agents")
    servers = table(*DESK[:3], user, other, both)
    line = {"responses_create_params": {"input": "hi"}, "_ng_environment_server": "both"}

    def routed(**more: Any) -> Any:
        [attempt] = plan(tmp_path / "r", [json.dumps({**line, **more})], servers).attempts()
        return attempt.row["agent_ref"]["name"]

    assert routed() == "desk"
    assert routed(agent_ref={"name": "user"}) == "user"
    with pytest.raises(ConfigError, match="`agent_ref` names `other`, which `both` does not front"):
        routed(agent_ref={"name": "other"})


def test_a_stamped_row_must_be_a_task_of_that_servers_resources_server() -> None:
    turn = entry("turn", "environment_servers", agent_server="desk", resources_server="tools")
    router = Router(table(*DESK[:3], turn))
    assert router.route({"_ng_environment_server": "turn", "task_source": "tools"}).agent == "desk"
    with pytest.raises(ConfigError, match="scores with `tools`"):
        router.route({"_ng_environment_server": "turn", "task_source": "others"})


@pytest.mark.parametrize(
    ("servers", "error"),
    [
        (DESK[:3], AgentWithoutEnvironmentServerError),
        ((*DESK, entry("two", "environment_servers", agent_server="desk")), AmbiguousEnvironmentServerError),
    ],
)
def test_an_agent_needs_exactly_one_environment_server(
    tmp_path: Path, servers: tuple[ServerEntry, ...], error: type[ConfigError]
) -> None:
    with pytest.raises(error):
        plan(tmp_path / "r", [row()], table(*servers)).check()


def test_a_task_source_resolves_by_pin_or_by_the_only_user() -> None:
    other = entry("other", "responses_api_agents", resources_server="tools")
    other_env = entry("other_env", "environment_servers", agent_server="other")
    with pytest.raises(ConfigError, match="2 agents use it: desk, other"):
        Router(table(*DESK, other, other_env)).route({"task_source": "tools"})
    pinned = entry("tools", "resources_servers", [{"agent": "other"}])
    assert (
        Router(table(*DESK, other, other_env, pinned)).route({"task_source": "tools"}).server == "other_env"
    )
    assert Router(table(*DESK)).route({"task_source": "desk"}).server == "desk_env"


def test_a_resources_server_is_also_used_through_its_environment_server() -> None:
    servers = table(
        entry("tools", "resources_servers"),
        entry("desk", "responses_api_agents"),
        entry("turn", "environment_servers", agent_server="desk", resources_server="tools"),
    )
    assert Router(servers).route({"task_source": "tools"}).server == "turn"


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="not an agent"):
        Router(table(*DESK), Routing({"_default": "policy"}))
    with pytest.raises(ConfigError) as caught:
        Router(table(*DESK), Routing({"_default": "dask"}))
    assert caught.value.hint == "did you mean desk?"
    with pytest.raises(ConfigError, match="no environment server here"):
        Router(table(*DESK)).route({"_ng_environment_server": "desk"})


def test_an_environment_server_depends_on_all_that_its_agent_calls() -> None:
    assert depends_on(table(*DESK), "desk_env") == {"desk_env", "desk", "tools", "policy"}


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.integers(1, 3))
def test_every_task_has_contiguous_rollouts_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], repeats: int
) -> None:
    made = plan(tmp_path_factory.mktemp("rows") / "r", [row(text) for text in texts], repeats=repeats)
    found = keys(made)
    assert len(found) == len(set(found)) == len(texts) * repeats
    assert {task for task, _ in found} == {texts.index(text) for text in texts}
    for task in {task for task, _ in found}:
        count = texts.count(texts[task]) * repeats
        assert sorted(rollout for other, rollout in found if other == task) == list(range(count))
