"""Directives: blocks made from other blocks, what leaves its old place, and who wrote what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.config.model import Origin
from gymctl.config.shaping import building, renames
from gymctl.config.tree.origins import Origins, OriginTree, leaves, uniform
from gymctl.errors import (
    AmbiguousAgentRenameError,
    ConfigError,
    ConfigMissingValuesError,
    InheritPathNotFoundError,
)

NAMES = st.sampled_from(["a", "b", "c", "d"])
TREES = st.recursive(
    st.sampled_from([1, "x", None, True]) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(NAMES, TREES, max_size=4)

QUIZ = """\
quiz:
  resources_servers: {weather_tool: {entrypoint: app.py, domain: knowledge}}
quiz_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      max_steps: 3
      resources_server: {type: resources_servers, name: quiz}
      model_server: {type: responses_api_models, name: policy_model}
quiz_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: quiz_simple_agent}
"""
TRIVIA = """\
config_paths: [quiz.yaml]
trivia_rs: {_inherit_from: quiz}
trivia_simple_agent:
  _inherit_from: quiz_simple_agent
  responses_api_agents: {simple_agent: {resources_server: {name: trivia_rs}, datasets: [{name: trivia, \
type: benchmark, jsonl_fpath: benchmarks/trivia/data/t.jsonl, prepare_script: benchmarks/trivia/prepare.py, \
num_repeats: 4}]}}
"""
TRIVIA_ENVIRONMENT = """\
trivia_environment_server:
  _inherit_from: quiz_environment_server
  environment_servers: {legacy_agent: {agent_server: {name: trivia_simple_agent}}}
"""


def tree_of(document: dict[str, Any], source: str = "a.yaml") -> dict[Any, OriginTree]:
    return {key: uniform(value, Origin(source, 1)) for key, value in document.items()}


def apply(document: dict[str, Any]) -> dict[Any, Any]:
    return building.apply(document, tree_of(document)).document


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": {"p": 1}, "x": "${inherit_from:a}"}, {"x": {"p": 1}}),
        ({"a": {"p": 1}, "x": "${copy:a}"}, {"a": {"p": 1}, "x": {"p": 1}}),
        ({"a": {"p": 1, "q": [1]}, "x": "${inherit_from:a.q}"}, {"a": {"p": 1}, "x": [1]}),
        ({"a": {"p": 1}, "x": {"_inherit_from": "a", "q": 2}}, {"x": {"p": 1, "q": 2}}),
        (
            {"a": {"p": 1, "q": 0}, "x": {"_copy": "a", "q": 2}},
            {"a": {"p": 1, "q": 0}, "x": {"p": 1, "q": 2}},
        ),
        # several targets may name one source
        (
            {"a": {"p": 1}, "x": "${inherit_from:a}", "y": {"_inherit_from": "a"}},
            {"x": {"p": 1}, "y": {"p": 1}},
        ),
        # lists of mappings are walked
        ({"a": 1, "x": [{"y": "${inherit_from:a}"}, 2]}, {"x": [{"y": 1}, 2]}),
        ({"a": [{"n": 1}, {"n": 2}], "x": "${copy:a[1].n}"}, {"a": [{"n": 1}, {"n": 2}], "x": 2}),
        # depth first: what is inside the siblings is made before they are laid over the source
        (
            {"a": {"s": {"p": 1, "q": 1}}, "b": {"q": 2}, "x": {"_inherit_from": "a", "s": {"_copy": "b"}}},
            {"b": {"q": 2}, "x": {"s": {"p": 1, "q": 2}}},
        ),
        # as in a merge: lists replace, null replaces, `???` does not
        (
            {"a": {"l": [1], "n": 1, "m": 1}, "x": {"_inherit_from": "a", "l": [3], "n": None, "m": "???"}},
            {"x": {"l": [3], "n": None, "m": 1}},
        ),
        # the frozen tree is read: a block that is moved away is still whole for the others
        (
            {"a": {"b": {"c": 1}}, "x": "${inherit_from:a.b}", "y": "${inherit_from:a}"},
            {"x": {"c": 1}, "y": {"b": {"c": 1}}},
        ),
        ({"math.v1": {"p": 1}, "x": "${inherit_from:math.v1.p}"}, {"math.v1": {}, "x": 1}),
        ({"a": {1: "one"}, "x": "${copy:a.1}"}, {"a": {1: "one"}, "x": "one"}),
        (
            {"q": {"p": 1}, "a": "${q}", "x": {"_copy": "a", "r": 2}},
            {"q": {"p": 1}, "a": "${q}", "x": {"p": 1, "r": 2}},
        ),
        (
            {"a": {"p": "${.q}", "q": 1}, "x": "${copy:a}"},
            {"a": {"p": "${.q}", "q": 1}, "x": {"p": "${.q}", "q": 1}},
        ),
        ({"a": {"p": 1}, "_inherit_from": "a"}, {"a": {"p": 1}, "_inherit_from": "a"}),
    ],
)
def test_a_directive_brings_its_source(before, after) -> None:
    assert apply(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"x": {"_delete_key": "p, q", "p": 1, "q": 2, "r": 3}}, {"x": {"r": 3}}),
        ({"a": {"p": 1, "q": 2}, "x": {"_inherit_from": "a", "_delete_key": "p"}}, {"x": {"q": 2}}),
        # a key that stands here goes first, so the inherited one stays
        ({"a": {"p": 1}, "x": {"_inherit_from": "a", "_delete_key": "p", "p": 2}}, {"x": {"p": 1}}),
        # inside the siblings of a directive it waits for what the directive brings
        (
            {"a": {"s": {"p": 1, "q": 2}}, "x": {"_copy": "a", "s": {"_delete_key": "p"}}},
            {"a": {"s": {"p": 1, "q": 2}}, "x": {"s": {"q": 2}}},
        ),
        ({"a": 1, "b": 2, "_delete_key": "a"}, {"b": 2}),
    ],
)
def test_delete_key_drops_children(before, after) -> None:
    assert apply(before) == after


@pytest.mark.parametrize(
    "document",
    [{"a": "???", "x": "${copy:a.b.c}"}, {"a": {"b": "???"}, "x": {"_copy": "a.b", "k": 1}}],
)
def test_a_mandatory_value_on_the_way_makes_the_target_mandatory(document) -> None:
    assert apply(document)["x"] == "???"


def test_a_mandatory_source_is_reported_as_missing(bench) -> None:
    bench.write("a.yaml", "a: ???\nx: {_inherit_from: a.b}\n")
    with pytest.raises(ConfigMissingValuesError) as caught:
        bench.document("a.yaml")
    assert "`x` is mandatory and not set (a.yaml:2:5)" in caught.value.details


@settings(deadline=None)
@given(MAPPINGS, st.dictionaries(NAMES, TREES, max_size=3))
def test_siblings_win_over_the_source_and_nothing_else_changes(source: dict, siblings: dict) -> None:
    from gymctl.config.tree.layers import Layer
    from gymctl.config.tree.merge import merge

    layers = [Layer(name, value, tree_of(value)) for name, value in (("a", source), ("b", siblings))]
    document = {"rest": {"k": 1}, "source": source, "x": {"_inherit_from": "source", **siblings}}
    try:
        expected, _ = merge(layers)
    except ConfigError:
        with pytest.raises(ConfigError):
            apply(document)
        return
    assert apply(document) == {"rest": {"k": 1}, "x": expected}
    assert apply({**document, "x": {"_copy": "source", **siblings}}) == {
        "rest": {"k": 1},
        "source": source,
        "x": expected,
    }


@settings(deadline=None)
@given(MAPPINGS, MAPPINGS)
def test_the_arguments_stay_and_every_leaf_has_a_writer(source: dict, other: dict) -> None:
    document = {"source": source, "x": "${inherit_from:source}", "y": {"deep": ["${copy:source}", other]}}
    before = repr(document)
    applied = building.apply(document, tree_of(document))
    assert repr(document) == before
    assert applied.document["x"] == source and "source" not in applied.document
    origins = Origins(applied.tree)
    for path, value in leaves(applied.document):
        if value in ({}, []):
            continue
        origin = origins.find(*path)
        assert origin is not None
        is_brought = path[0] == "x" or path[:3] == ("y", "deep", 0)
        assert (origin.via is not None) == is_brought


def test_an_inherited_value_names_its_writer_and_the_directive(bench) -> None:
    bench.write("a.yaml", "a:\n  p: 1\n  q: 2\n")
    bench.write("b.yaml", "x:\n  _inherit_from: a\n  q: 3\n")
    bench.write(
        "one_server.yaml", "s: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n"
    )
    origins = bench.load("one_server.yaml", "a.yaml", "b.yaml").origins
    assert str(origins["x.p"]) == "a.yaml:2:3 via b.yaml:2:3"
    assert origins["x.p"] == Origin("a.yaml", 2, 3, Origin("b.yaml", 2, 3))
    assert str(origins["x.q"]) == "b.yaml:3:3"
    assert "a.p" not in origins


def test_a_directive_may_come_from_the_command_line(bench) -> None:
    bench.write("a.yaml", "a: {p: 1, q: 2}\nb: {p: 1, q: 2}\n")
    document = bench.document("a.yaml", overrides=("+x._copy=a", "+x.q=3", "++b._delete_key=p"))
    assert (document["x"], document["b"]) == ({"p": 1, "q": 3}, {"q": 2})


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("quiz_rs: {p: 1}\nx: {_inherit_from: quizz_rs}\n", "`x` inherits from `quizz_rs`", "`quiz_rs`"),
        ("a: {prompt: 1}\nx: ${copy:a.promt}\n", "`x` copies `a.promt`", "`a.prompt`"),
        ("a: [1]\nx: ${copy:a.1}\n", "`x` copies `a.1`", None),
        ("a: 1\nx: ${copy:a.b}\n", "(`a` has no such key)", None),
    ],
)
def test_a_source_that_is_not_there_is_named_with_its_place(bench, text, what, hint) -> None:
    bench.write("a.yaml", text)
    with pytest.raises(InheritPathNotFoundError) as caught:
        bench.document("a.yaml")
    assert what in caught.value.what
    assert caught.value.where in ("a.yaml:2:1", "a.yaml:2:5")
    assert caught.value.exit_code == 1
    assert (hint is None) == (caught.value.hint is None)
    assert (hint or "") in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: {p: 1}\nx: {_delete_key: 3}\n", "must name keys"),
        ("a: {p: 1}\nx: {_inherit_from: [a]}\n", "must be the path of a block"),
        ("a: {p: 1}\nx: {_inherit_from: a, _copy: a}\n", "has both"),
        ("a: [1]\nx: {_copy: a, q: 2}\n", "is no mapping"),
        ("a: {b: {c: 1}}\nx: {_copy: a, b: [1]}\n", "cannot be merged"),
        ("a: {prompt: 1}\nx: {_copy: a, _delete_key: promt}\n", "names `promt`"),
        ("a: {p: 1}\nx: {_copy: a, s: {_delete_key: p}}\n", "`x.s._delete_key` names `p`"),
        ("a: {p: 1}\nx: {y: {_inherit_from: x}}\n", "of which it is a part"),
        ("a: {p: 1}\nx: the ${copy:a.p}\n", "part of a text"),
        ("a: ${b}\nx: {_copy: a}\nb: ${a}\n", "circle"),
    ],
)
def test_a_directive_that_cannot_be_followed_is_an_error_with_its_line(bench, text, what) -> None:
    bench.write("a.yaml", text)
    with pytest.raises(ConfigError) as caught:
        bench.document("a.yaml")
    assert what in caught.value.what
    assert "a.yaml:2:" in str(caught.value.where)


def test_brought_content_is_not_scanned_again_and_says_so(bench) -> None:
    bench.write("a.yaml", "a: {p: 1}\nb:\n  _inherit_from: a\nc:\n  _inherit_from: b\n")
    with pytest.raises(ConfigError, match="not followed") as caught:
        bench.document("a.yaml")
    assert caught.value.where == "a.yaml:3:3 via a.yaml:5:3"


def test_the_worked_example(stack) -> None:
    stack.write("quiz.yaml", QUIZ)
    stack.write("trivia.yaml", TRIVIA + TRIVIA_ENVIRONMENT)
    config = stack.load("model.yaml", "trivia.yaml")
    assert set(config.servers) == {
        "policy_model",
        "trivia_rs",
        "trivia_simple_agent",
        "trivia_environment_server",
    }
    agent = config.servers["trivia_simple_agent"].settings
    assert agent["max_steps"] == 3
    assert agent["resources_server"] == {"type": "resources_servers", "name": "trivia_rs"}
    assert [dataset.num_repeats for dataset in config.datasets] == [4]
    relay = config.servers["trivia_environment_server"].settings
    assert relay["agent_server"]["name"] == "trivia_simple_agent"


def test_environment_servers_follow_an_agent_to_its_new_name(stack) -> None:
    stack.write("quiz.yaml", QUIZ)
    stack.write("trivia.yaml", TRIVIA)
    config = stack.load("model.yaml", "trivia.yaml")
    relay = config.servers["quiz_environment_server"]
    assert relay.settings["agent_server"]["name"] == "trivia_simple_agent"
    key = "quiz_environment_server.environment_servers.legacy_agent.agent_server.name"
    assert str(config.origins[key]) == "quiz.yaml:14:50 via trivia.yaml:4:3"


def test_an_agent_that_was_copied_keeps_its_environment_server(stack) -> None:
    stack.write("quiz.yaml", QUIZ)
    stack.write("more.yaml", "other_agent: {_copy: quiz_simple_agent}\n")
    config = stack.load("model.yaml", "quiz.yaml", "more.yaml")
    relay = config.servers["quiz_environment_server"]
    assert relay.settings["agent_server"]["name"] == "quiz_simple_agent"


def test_an_agent_with_several_new_names_is_ambiguous_while_it_is_referenced(stack) -> None:
    stack.write("quiz.yaml", QUIZ)
    stack.write(
        "two.yaml", "one: {_inherit_from: quiz_simple_agent}\ntwo: {_inherit_from: quiz_simple_agent}\n"
    )
    with pytest.raises(AmbiguousAgentRenameError) as caught:
        stack.load("model.yaml", "quiz.yaml", "two.yaml")
    assert "`one` and `two`" in caught.value.what
    assert caught.value.where == "quiz.yaml:14:50"
    assert caught.value.details == ("`one` (two.yaml:1:7)", "`two` (two.yaml:2:7)")
    stack.write("gone.yaml", "_delete_key: quiz_environment_server\n")
    assert {"one", "two"} <= set(stack.load("model.yaml", "quiz.yaml", "two.yaml", "gone.yaml").servers)


def test_every_kind_of_agent_reference_follows() -> None:
    document = {
        "old": {"responses_api_agents": {"simple": {}}},
        "new": {"_inherit_from": "old"},
        "env": {
            "environment_servers": {
                "turn": {
                    "agent_server": {"name": "old"},
                    "user_agent": {"type": "responses_api_agents", "name": "old"},
                    "resources_server": {"type": "resources_servers", "name": "old"},
                    "deep": {"agent": {"type": "responses_api_agents", "name": "old"}},
                }
            }
        },
    }
    applied = building.apply(document, tree_of(document))
    followed = renames.follow(applied, document)
    turn = applied.document["env"]["environment_servers"]["turn"]
    assert turn["agent_server"]["name"] == turn["user_agent"]["name"] == "new"
    assert turn["resources_server"]["name"] == turn["deep"]["agent"]["name"] == "old"
    assert len(followed) == 2


def test_delete_key_without_such_a_key_is_only_warned_about(bench) -> None:
    server = "{entrypoint: app.py, domain: agent}"
    bench.write("one_server.yaml", f"weather: {{resources_servers: {{weather_tool: {server}}}}}\n")
    bench.write("a.yaml", "x: {y: {_delete_key: q, p: 1}}\n_copy: x\n")
    config = bench.load("one_server.yaml", "a.yaml")
    assert config.document["x"] == {"y": {"p": 1}}
    assert config.document["_copy"] == "x"
    told = " ".join(config.warnings)
    assert "`x.y._delete_key` names `q`" in told and "`_copy` has no effect" in told
