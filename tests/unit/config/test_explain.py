"""Why a key has its value: all writers in order, the winner last, secrets masked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gymctl.config.model import Config, Origin
from gymctl.config.shaping.writers import Writers
from gymctl.config.telling.explain import explain
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.merge import merge
from gymctl.config.tree.origins import dotted, leaves, uniform
from gymctl.errors import ConfigError, UsageError

KEYS = st.sampled_from("abc")
TREES = st.recursive(
    st.sampled_from([1, "x", None, True, "???"]) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
MAPPINGS = st.dictionaries(KEYS, TREES, max_size=3)
SERVER = "s: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n"


def told(config: Config, key: str) -> list[tuple[str, Any]]:
    """(file:line, what it said) of one leaf's writers."""
    return [(line_of(write.origin), write.said) for write in explain(config, key)[0].writers]


def line_of(origin: Origin) -> str:
    return origin.source if origin.line is None else f"{origin.source}:{origin.line}"


@pytest.fixture
def load(bench):
    def load(*texts: str, **named: Any) -> Config:
        bench.write("server.yaml", SERVER)
        names = [f"{letter}.yaml" for letter in "abcdef"[: len(texts)]]
        for name, text in zip(names, texts, strict=True):
            bench.write(name, text)
        return bench.load("server.yaml", *names, **named)

    return load


@settings(deadline=None)
@given(st.lists(MAPPINGS, min_size=1, max_size=4))
@example([{"a": 1}, {"a": {"a": "???"}}])
@example([{"a": {"a": 1}}, {"a": None}, {"a": {"a": "???"}}])
@example([{"a": {"a": 1}}, {"a": "???"}])
def test_the_last_writer_said_the_value_and_is_the_origin(trees: list[dict[str, Any]]) -> None:
    layers = [
        Layer(f"{index}", tree, {key: uniform(value, Origin(f"{index}")) for key, value in tree.items()})
        for index, tree in enumerate(trees)
    ]
    try:
        document, origins = merge(layers)
    except ConfigError:
        return  # a mapping against a list
    writers = Writers(layers, document)
    for path, value in leaves(document):
        if value in ({}, []):
            continue
        winner = writers[dotted(path)][-1]
        assert (winner.said, winner.key) == (value, dotted(path))
        assert winner.origin == origins.find(*path)


def test_every_writer_is_told_in_order(bench, load) -> None:
    bench.write("env.yaml", "judge:\n  t: 3\n")
    config = load("judge:\n  t: 1\n", "judge:\n  t: 2\n  other: 1\n", overrides=("++judge.t=4",))
    assert told(config, "judge.t") == [("a.yaml:2", 1), ("b.yaml:2", 2), ("env.yaml:2", 3), ("++judge.t", 4)]
    assert told(config, "judge.other") == [("b.yaml:3", 1)]
    assert str(config.origins["judge.t"]) == "++judge.t"


def test_a_null_that_removed_a_mapping_is_told(load) -> None:
    assert told(load("d: {x: 1}\n", "d: null\n"), "d") == [("a.yaml:1", {"x": 1}), ("b.yaml:1", None)]


def test_a_mandatory_value_never_wins(load) -> None:
    assert told(load("d: 1\n", "d: ???\n"), "d") == [("b.yaml:1", "???"), ("a.yaml:1", 1)]


def test_what_nobody_wrote_is_a_default(load) -> None:
    config = load("head_server: {port: null}\n")
    assert told(config, "s.resources_servers.weather_tool.host") == [("default", "127.0.0.1")]
    assert told(config, "head_server.port") == [("a.yaml:1", None), ("default", 11000)]


def test_a_flag_that_was_not_given_wrote_nothing(load) -> None:
    """B15: what the file says is told as the file's."""
    assert told(load("num_samples_in_parallel: 4\n"), "num_samples_in_parallel") == [("a.yaml:1", 4)]


def test_a_reference_is_followed_to_its_own_writers(load) -> None:
    config = load("url: ${host}/v1\nhost: a\n", "host: b\n")
    found = explain(config, "url")
    assert [item.key for item in found] == ["url", "host"]
    assert (found[0].value, found[0].refers_to) == ("b/v1", ("host",))
    assert [write.said for write in found[1].writers] == ["a", "b"]


def test_a_value_inside_an_expanded_reference_leads_to_its_source(load) -> None:
    """B11: `judge: ${base}` that a later file touches."""
    config = load("base: {t: 0.2, n: 3}\njudge: ${base}\n", "judge: {t: 0.9}\n")
    found = explain(config, "judge.n")
    assert [(item.key, item.value) for item in found] == [("judge.n", 3), ("base.n", 3)]
    assert (found[0].writers[-1].said, found[0].writers[-1].key) == ("${base}", "judge")
    assert told(config, "judge.t")[-1] == ("b.yaml:1", 0.9)


def test_a_block_is_explained_leaf_by_leaf(load) -> None:
    config = load("judge:\n  t: 1\n  steps: [a, {k: 2}]\njudgement: 1\n")
    assert [item.key for item in explain(config, "judge")] == [
        "judge.t",
        "judge.steps[0]",
        "judge.steps[1].k",
    ]
    assert told(config, "judge.steps[1].k") == [("a.yaml:3", 2)]


def test_directives_are_writers_too(load) -> None:
    config = load("a: {p: 1, q: 1, r: 1}\n", "a: {q: 2}\nx:\n  _inherit_from: a\n  r: 3\ny: ${copy:a}\n")
    assert told(config, "x.q") == [("a.yaml:1", 1), ("b.yaml:1", 2), ("b.yaml:3", "_inherit_from: a")]
    assert told(config, "x.r") == [("a.yaml:1", 1), ("b.yaml:3", "_inherit_from: a"), ("b.yaml:4", 3)]
    assert told(config, "y.q")[-1] == ("b.yaml:5", "${copy:a}")
    assert explain(config, "x.q")[0].writers[0].key == "a.q"


def test_a_directive_that_replaced_a_block_ranks_above_it(load) -> None:
    config = load("x: {p: 1}\n", "a: {p: 2}\nx: ${inherit_from:a}\n")
    assert told(config, "x.p") == [("a.yaml:1", 1), ("b.yaml:1", 2), ("b.yaml:2", "${inherit_from:a}")]
    assert explain(config, "x.p")[0].value == 2


def test_a_reference_that_followed_an_agent_says_so(load) -> None:
    config = load(
        "tool: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n"
        "old: {responses_api_agents: {simple_agent: {entrypoint: app.py}}}\n"
        "env: {environment_servers: {legacy_agent: {entrypoint: app.py, agent_server: {name: old}}}}\n",
        "new: {_inherit_from: old}\n",
    )
    [found] = explain(config, "env.environment_servers.legacy_agent.agent_server")
    assert found.value == "new"
    assert [(line_of(write.origin), write.said, write.kind) for write in found.writers] == [
        ("a.yaml:3", "old", "value"),
        ("b.yaml:1", "_inherit_from: old", "rename"),
    ]


def test_secrets_are_masked_also_those_that_lost(bench, load) -> None:
    bench.write("env.yaml", "policy_api_key: sk-replaced-111\n")
    config = load(
        "server_key: ${policy_api_key}\nnote: with sk-replaced-111 and sk-winning-222\n"
        "extra_headers: {X-Team: blue-team-9}\nkeys: [sk-listed-333]\n",
        overrides=("++policy_api_key=sk-winning-222", "++extra_headers.X-Team=red-team-10"),
    )
    assert told(config, "policy_api_key") == [("env.yaml:1", "****"), ("++policy_api_key", "****")]
    assert told(config, "server_key") == [("a.yaml:1", "${policy_api_key}")]
    assert told(config, "note") == [("a.yaml:2", "with **** and ****")]
    shown = repr([explain(config, key) for key in ("note", "extra_headers", "keys", "server_key")])
    for secret in ("sk-replaced", "sk-winning", "sk-listed", "blue-team", "red-team"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("judge.promt", "`judge.prompt`"),
        ("prompt", "`judge.prompt`"),
        ("promtp", "`judge.prompt`"),
        ("jugde", "`judge`"),
    ],
)
def test_an_unknown_key_is_a_usage_error_with_near_names(load, key, near) -> None:
    with pytest.raises(UsageError) as caught:
        explain(load("judge: {prompt: A}\n"), key)
    assert f"`{key}` is not in the configuration" in caught.value.what
    assert near in (caught.value.hint or "")


def test_included_paths_are_told_by_who_listed_them(bench, load) -> None:
    bench.write("inner.yaml", "k: 1\n")
    config = load("config_paths: [inner.yaml]\n")
    places = {item.value: line_of(item.writers[-1].origin) for item in explain(config, "config_paths")}
    assert places == {"server.yaml": "command line", "a.yaml": "command line", "inner.yaml": "a.yaml:1"}


def test_an_item_of_a_list_of_secrets_is_hidden_whole(bench) -> None:
    bench.write("a.yaml", SERVER + "tokens: [{name: ab-12}, plain]\nplain: [{name: ab-34}]\n")
    told_of = {
        item.key: (item.value, item.writers[-1].said) for item in explain(bench.load("a.yaml"), "tokens")
    }
    assert list(told_of.values()) == [("****", "****")] * 2
    assert explain(bench.load("a.yaml"), "plain[0].name")[0].writers[-1].said == "ab-34"
