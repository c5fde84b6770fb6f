"""What settings do to rows: repeats by name, fan-out, re-routing, modes, seeds, order (CONTRACT 9.3, 9.4)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.rollout import ENVIRONMENT_SERVER, rollout_key
from gymctl.contract.servers import Address, ServerEntry, ServerKind, ServerTable
from gymctl.errors import ConfigError
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.expand import Attempt, Plan
from gymctl.rollouts.route import Router, Routing

MATERIALIZED = {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}}


def entry(name: str, kind: ServerKind, **references: str) -> ServerEntry:
    address = Address(kind=kind, implementation="x", host="127.0.0.1", port=1)
    return ServerEntry(name=name, address=address, references=references)


def agents(*names: str) -> ServerTable:
    """Agents that use the tools, each behind an environment server of its own."""
    entries = [entry("tools", "resources_servers")]
    for name in names:
        entries += [
            entry(name, "responses_api_agents", resources_server="tools"),
            entry(f"{name}_env", "environment_servers", agent_server=name),
        ]
    return ServerTable(servers={one.name: one for one in entries})


Planner = Callable[..., Plan]


@pytest.fixture
def plan(tmp_path: Path) -> Planner:
    def make(rows: list[dict[str, Any]], routing: Routing | None = None, **options: Any) -> Plan:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        where = options.get("where")
        router = Router(options.pop("table", agents("a", "b")), routing, *([where] if where else []))
        return Plan([Source(path, repeats=options.pop("dataset_repeats", 1))], router, **options)

    return make


def row(agent: str | None = "a", text: str = "hi", **more: Any) -> dict[str, Any]:
    named = {} if agent is None else {"agent_ref": {"name": agent}}
    return {"responses_create_params": {"input": text, **more.pop("params", {})}, **named, **more}


def agent_of(attempt: Attempt) -> str:
    return attempt.row["agent_ref"]["name"]


def order(plan: Plan) -> list[tuple[str, int, int]]:
    return [(agent_of(attempt), *rollout_key(attempt.row)) for attempt in plan.attempts()]


def problem(plan: Plan) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        plan.check()
    return caught.value


def test_the_checked_example_of_the_contract(plan: Planner) -> None:
    made = plan([row(), row()], Routing(fan_out={"a": ["a", "b"]}), repeats=2)
    assert order(made) == [(agent, 0, index) for index, agent in enumerate("aabbaabb")]
    assert [attempt.route.server for attempt in made.attempts()] == [f"{agent}_env" for agent in "aabbaabb"]
    assert made.check().tasks == {0: 8}


def test_fan_out_leaves_rows_of_other_names_alone(plan: Planner) -> None:
    made = plan([row("b"), row(None, task_source="tools")], Routing(fan_out={"tools": ["b", "a"]}))
    assert order(made) == [("b", 0, 0), ("b", 1, 0), ("a", 1, 1)]
    assert list(made.check().notices()) == ["the score is over all of a, b; the metrics file has each alone"]


def test_interleaved_rounds_keep_the_order_of_the_rows(plan: Planner) -> None:
    made = plan([row(text="x"), row(text="y"), row(text="x")], repeats=2, is_interleaved=True)
    assert [rollout_key(attempt.row) for attempt in made.attempts()] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("repeats", "counts"),
    [
        ({"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"_default": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"_default": 2}, {"a": 2, "b": 2}),
        (4, {"a": 4, "b": 4}),
    ],
)
def test_repeats_by_agent(plan: Planner, repeats: Any, counts: dict[str, int]) -> None:
    made = plan([row("a"), row("b")], repeats=repeats, dataset_repeats=2)
    assert Counter(map(agent_of, made.attempts())) == {name: 2 * count for name, count in counts.items()}
    assert made.check().repeats == 2 * max(counts.values())


def test_the_agent_that_runs_a_row_counts_before_the_one_that_it_names(plan: Planner) -> None:
    routing = Routing(agent_map={"old": "a", "older": "b"})
    made = plan([row("old"), row("older")], routing, repeats={"a": 2, "old": 5, "older": 3})
    assert Counter(map(agent_of, made.attempts())) == {"a": 2, "b": 3}


def test_repeats_apply_to_each_agent_of_a_fan_out(plan: Planner) -> None:
    made = plan([row()], Routing(fan_out={"a": ["a", "b"]}), repeats={"a": 1, "b": 3})
    assert order(made) == [("a", 0, 0), ("b", 0, 1), ("b", 0, 2), ("b", 0, 3)]


def test_b16_a_misspelt_agent_in_num_repeats_is_refused(plan: Planner) -> None:
    made = plan(
        [row("weather_agent")],
        table=agents("weather_agent"),
        repeats={"weather_agnt": 8, "_default": 1},
        where={"num_repeats.weather_agnt": "a.yaml:1"}.get,
    )
    error = problem(made)
    assert error.what == "`num_repeats` names `weather_agnt`, which no row and no server has"
    assert (error.where, error.hint) == ("a.yaml:1", "did you mean `weather_agent`?")
    assert error.details == ("in the rows: weather_agent",)


def test_an_agent_that_no_row_of_a_short_run_has_is_only_told(plan: Planner) -> None:
    summary = plan([row("a"), row("b")], repeats={"a": 1, "b": 2}, limit=1).check()
    assert list(summary.notices()) == ["`num_repeats.b` is about no row of this run"]


def test_names_without_an_entry_are_refused_together(plan: Planner) -> None:
    made = plan([row("a"), row("b"), row("c")], table=agents("a", "b", "c"), repeats={"a": 2})
    assert problem(made).what == "`num_repeats` has no entry for `b`, `c` and no `_default`"


@pytest.mark.parametrize(
    ("routing", "ran"),
    [
        ({"a": "b"}, ["b", "b", "a"]),
        ({"a": "b", "b": "a"}, ["b", "a", "a"]),
        ({"tools": "b"}, ["a", "b", "b"]),
        ({"_default": "b"}, ["b", "b", "a"]),
        ({"a": "a", "tools": "b", "_default": "a"}, ["a", "a", "b"]),
    ],
)
def test_agent_map_sends_each_row_on_once(plan: Planner, routing: dict[str, str], ran: list[str]) -> None:
    rows = [row("a"), row("b"), row(None, task_source="tools")]
    made = plan(rows, Routing(agent_map={"tools": "a", **routing}))
    assert [agent for agent, *_ in order(made)] == ran
    assert [attempt.route.server for attempt in made.attempts()] == [f"{agent}_env" for agent in ran]


def test_rows_sent_elsewhere_are_told(plan: Planner) -> None:
    made = plan([row("a"), row("a", "x"), row("b")], Routing(agent_map={"a": "b"}))
    assert list(made.check().notices()) == ["2 rows name `a`; they go to `b`"]


def test_an_unknown_agent_in_a_setting_is_told_once_with_the_place_of_the_setting(plan: Planner) -> None:
    routing = Routing(agent_map={"a": "bb"})
    error = problem(plan([row(), row(text="x")], routing, where={"agent_map.a": "a.yaml:4"}.get))
    assert (error.what, error.where) == ("`agent_map.a`: there is no agent `bb`", "a.yaml:4")


def test_an_unknown_agent_that_no_row_is_sent_to_is_nobodys_problem(plan: Planner) -> None:
    assert plan([row()], Routing(agent_map={"elsewhere": "gone"})).check().rollouts == 1


def test_legacy_mode_sends_flat_rows_to_one_server_and_stamps_them(plan: Planner) -> None:
    routing = Routing(mode="legacy", server="b_env", agent_map={"_default": "a"})
    (attempt,) = plan([row(None)], routing).attempts()
    assert attempt.route.server == attempt.row[ENVIRONMENT_SERVER] == "b_env"
    assert agent_of(attempt) == "b"


def test_a_server_chosen_by_mode_must_front_the_rows_agent(plan: Planner) -> None:
    error = problem(plan([row("a")], Routing(mode="legacy", server="b_env")))
    assert error.what == "`agent_ref` names `a`, which `b_env` does not front"


def test_legacy_mode_needs_a_server_that_is_there() -> None:
    with pytest.raises(ConfigError, match="`environment_server_name` names `b_evn`") as caught:
        Router(agents("a", "b"), Routing(mode="legacy", server="b_evn"))
    assert caught.value.hint == "did you mean b_env, a_env?"


def test_taskset_mode_refuses_flat_rows(plan: Planner) -> None:
    routing = Routing(mode="taskset", taskset_servers={"t": "a_env"})
    error = problem(plan([MATERIALIZED, row()], routing))
    assert error.what.startswith("this row names no taskset")
    assert (error.where or "").endswith(":2")


@pytest.mark.parametrize("mode", ["agent", "legacy", "taskset"])
def test_a_materialized_row_follows_its_taskset_in_every_mode(plan: Planner, mode: Any) -> None:
    routing = Routing(mode=mode, server="b_env", taskset_servers={"t": "a_env"}, fan_out={"t": ["b"]})
    made = plan([MATERIALIZED], routing, repeats={"t": 2, "_default": 1})
    assert [attempt.row[ENVIRONMENT_SERVER] for attempt in made.attempts()] == ["a_env", "a_env"]
    error = problem(plan([MATERIALIZED], Routing(mode=mode, server="b_env", taskset_servers={"u": "a_env"})))
    assert error.what == "there is no route for the taskset `t`"


def test_a_planned_row_finds_the_same_server_without_the_settings(plan: Planner) -> None:
    routing = Routing(agent_map={"a": "b", "b": "a"}, taskset_servers={"t": "a_env"})
    for attempt in plan([row("a"), row("b"), MATERIALIZED], routing).attempts():
        assert Router(agents("a", "b")).route(attempt.row) == attempt.route


@pytest.mark.parametrize("asked", [{"agent_map": {"_default": "b"}}, {"fan_out": {"a": ["a", "b"]}}])
def test_an_agent_that_the_verifier_does_not_accept_is_refused(plan: Planner, asked: Any) -> None:
    servers = dict(agents("a", "b").servers)
    other = Address(kind="responses_api_agents", implementation="other", host="127.0.0.1", port=1)
    servers["b"] = servers["b"].model_copy(update={"address": other})
    servers["tools"] = servers["tools"].model_copy(update={"allowed_agents": ("x",)})
    table = ServerTable(servers=servers)
    assert plan([row()], table=table).check().rollouts == 1
    error = problem(plan([row()], Routing(**asked), table=table))
    assert error.what == "`b` runs `other`, and `tools` accepts only: x"
    assert plan([row()], Routing(**asked, allows_any_pairing=True), table=table).check().rollouts > 0


def test_allowed_agents_are_read_as_a_list_or_one_name() -> None:
    def allowed(value: Any) -> tuple[str, ...]:
        block = {"host": "h", "port": 1, "allowed_agents": value}
        return ServerTable.from_document({"tools": {"resources_servers": {"x": block}}})[
            "tools"
        ].allowed_agents

    assert [allowed(value) for value in (["a", "b"], "a", None)] == [("a", "b"), ("a",), ()]


def test_seeds_are_rollout_indices_inside_the_rows_own_extra_body(plan: Planner) -> None:
    rows = [row(params={"metadata": {"extra_body": '{"k": 1}', "m": "n"}}), row(text="x")]
    made = plan(rows, repeats=2, is_seeded=True)
    sent = [attempt.row["responses_create_params"]["metadata"] for attempt in made.attempts()]
    assert [json.loads(metadata["extra_body"]) for metadata in sent] == [
        {"k": 1, "seed": 0}, {"k": 1, "seed": 1}, {"seed": 0}, {"seed": 1}
    ]  # fmt: skip
    assert sent[0]["m"] == "n"


@pytest.mark.parametrize("extra", ["no json", "[1]", {"k": 1}])
def test_a_seed_needs_an_extra_body_that_is_the_text_of_an_object(plan: Planner, extra: Any) -> None:
    error = problem(plan([row(params={"metadata": {"extra_body": extra}})], is_seeded=True, repeats=3))
    assert "metadata.extra_body" in error.what
    assert (error.where or "").endswith("rows.jsonl:1")


def test_sampling_settings_and_seeds_are_refused_for_materialized_rows(plan: Planner) -> None:
    routing = Routing(taskset_servers={"t": "a_env"})
    assert "sampling settings" in problem(plan([MATERIALIZED], routing, params={"top_p": 1})).what
    assert "num_repeats_add_seed" in problem(plan([MATERIALIZED], routing, is_seeded=True)).what


def test_b07_a_nested_sampling_field_replaces_the_rows_mapping_and_says_so(plan: Planner) -> None:
    reasoning = {"reasoning": {"summary": "auto"}}
    made = plan([row(params=reasoning), row(text="x")], params={"reasoning": {"effort": "low"}})
    for attempt in made.attempts():
        assert attempt.row["responses_create_params"]["reasoning"] == {"effort": "low"}
    assert list(made.check().notices()) == [
        "`responses_create_params.reasoning` replaces the rows' own as a whole: without their `summary`"
    ]


def test_nothing_is_said_when_nothing_is_lost(plan: Planner) -> None:
    made = plan([row(params={"reasoning": {"effort": "high"}})], params={"reasoning": {"effort": "low"}})
    assert list(made.check().notices()) == []


NAMES = st.sampled_from("abc")
ROWS = st.lists(st.tuples(NAMES, st.sampled_from("xy")), min_size=1, max_size=8)


@given(
    lines=ROWS,
    fan_out=st.dictionaries(NAMES, st.lists(NAMES, min_size=1, max_size=3, unique=True)),
    agent_map=st.dictionaries(NAMES, NAMES),
    repeats=st.fixed_dictionaries({"_default": st.integers(1, 3)}, optional={"a": st.integers(1, 3)}),
    times=st.integers(1, 2),
    is_interleaved=st.booleans(),
)
def test_indices_are_dense_per_task_and_counts_add_up(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, str]],
    fan_out: dict[str, list[str]],
    agent_map: dict[str, str],
    repeats: dict[str, int],
    times: int,
    is_interleaved: bool,
) -> None:
    path = tmp_path_factory.mktemp("rows") / "r"
    path.write_text("".join(json.dumps(row(*line)) + "\n" for line in lines))
    router = Router(agents("a", "b", "c"), Routing(agent_map=agent_map, fan_out=fan_out))
    made = Plan([Source(path, repeats=times)], router, repeats=repeats, is_interleaved=is_interleaved)
    attempts = list(made.attempts())

    def count(agent: str, named: str) -> int:
        own = next((repeats[name] for name in (agent, named) if name in repeats), repeats["_default"])
        return own * times

    expected: Counter[tuple[int, str]] = Counter()
    for line in lines:
        for agent in fan_out.get(line[0]) or [agent_map.get(line[0], line[0])]:
            expected[lines.index(line), agent] += count(agent, line[0])
    assert Counter((attempt.row["_ng_task_index"], agent_of(attempt)) for attempt in attempts) == expected
    assert made.check().rollouts == len(attempts) == expected.total()
    by_task: dict[int, list[int]] = {}
    for attempt in attempts:
        task, rollout = rollout_key(attempt.row)
        by_task.setdefault(task, []).append(rollout)
    assert all(found == list(range(len(found))) for found in by_task.values())
    if is_interleaved:
        rounds = [rollout_key(attempt.row)[1] for attempt in attempts]
        assert rounds == sorted(rounds)
