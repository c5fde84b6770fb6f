"""Merging and resolving mean what they mean in OmegaConf, which is the oracle here (CONTRACT 1.4, 1.9)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from gymctl.config.model import Origin
from gymctl.config.problems import Problems
from gymctl.config.tree import interpolation
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.lookup import Circle, Lookup, Unresolved
from gymctl.config.tree.merge import merge
from gymctl.config.tree.origins import Origins, leaves, uniform
from gymctl.config.tree.pruned import tree_for
from gymctl.errors import ConfigError, ConfigInterpolationError

SCALARS = st.sampled_from([1, 2.5, "x", "", None, True, "???", b"\x00"])
NAMES = st.sampled_from(
    ["a", "b", "c", "a.a", "a.b", "b.c.a", "d", "a.0", "l.0", "l[1]", "l[0].a", "a-b", "[a].b"]
)
REFERENCES = st.one_of(
    NAMES.map("${{{}}}".format),
    st.tuples(st.sampled_from([".", "..", "...", "...."]), NAMES).map(
        lambda pair: "${" + "".join(pair) + "}"
    ),
    st.tuples(NAMES, NAMES).map(lambda pair: "http://${{{}}}/v1 ${{{}}}".format(*pair)),
    st.sampled_from(
        [
            "${oc.env:GYMCTL_TEST_SET}",
            "${oc.env:GYMCTL_TEST_UNSET}",
            "${oc.env:GYMCTL_TEST_UNSET,${a}}",
            "${oc.env:GYMCTL_TEST_SET,false}",
            "${oc.env:GYMCTL_TEST_UNSET,false}",
            "${oc.env:GYMCTL_TEST_UNSET,null}",
            "${oc.env:NULL,false}",
            "${a.${b}}",
            "${oc.select:a.b,7}",
            "${oc.create:{a: 1}}",
            "${no_such:1}",
            r"\${a}",
            "$${a}",
            "{'x': ${ a }}",
        ]
    ),
)
KEYS = st.sampled_from(["a", "b", "c", "l", "a-b", 0, True])


def trees(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=6,
    )
    return st.dictionaries(KEYS, values, min_size=1, max_size=4)


DOCUMENTS = trees(SCALARS | REFERENCES)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMCTL_TEST_SET", "from the shell")
    monkeypatch.setenv("GYMCTL_TEST_REFERENCE", "${a}")
    monkeypatch.setenv("GYMCTL_TEST_MISSING", "???")
    monkeypatch.delenv("GYMCTL_TEST_UNSET", raising=False)


def layer(name: str, values: dict[Any, Any]) -> Layer:
    return Layer(name, values, {key: uniform(value, Origin(name)) for key, value in values.items()})


def merged_by_omegaconf(documents: list[dict[Any, Any]]) -> Any:
    """None: OmegaConf refuses."""
    try:
        return OmegaConf.to_container(OmegaConf.merge({}, *documents))
    except (OmegaConfBaseException, TypeError, RecursionError):
        return None


@settings(deadline=None, max_examples=100)
@given(st.lists(DOCUMENTS, min_size=1, max_size=4))
@example([{"a": {"b": {"c": 1}}, "b": "${a}"}, {"b": {"b": {"l": 2}}}, {"b": "???"}])
@example([{"a": {"b": "${..c}", "c": 1}, "b": {"c": "${a}"}, "c": {"l": 3}}, {"b": {"c": {"b": {"a": 2}}}}])
@example([{"a": {"l": 1}, "b": "${c}", "c": "${a}"}, {"a": {"l": 2}, "b": {"a": 1}}])
@example([{"a": [1], "b": "${a}"}, {"b": {"c": 1}}])
@example([{"a": {"c": 1}, "b": "${a}"}, {"b": [1]}])
@example([{"a": "${a}"}, {"a": {"b": 1}}])
def test_layers_merge_as_omegaconf_merges_them(documents: list[dict[Any, Any]]) -> None:
    expected = merged_by_omegaconf(documents)
    layers = [layer(f"{index}.yaml", document) for index, document in enumerate(documents)]
    try:
        merged, origins = merge(layers)
    except ConfigError:
        assert expected is None
        return
    assert repr(merged) == repr(expected)
    assert all(origins.find(*path) for path, value in leaves(merged) if value not in ({}, []))
    assert repr([one.values for one in layers]) == repr(documents)


def resolved_by_us(document: dict[Any, Any], origins: Origins | None = None) -> dict[str, Any]:
    problems = Problems()
    resolved = interpolation.resolve(document, origins or Origins({}), problems)
    problems.stop()
    return resolved


def answer_of_omegaconf(document: dict[Any, Any], path: tuple[Any, ...]) -> tuple[str, Any]:
    node: Any = OmegaConf.create(document)
    try:
        for step in path:
            node = node[step]
    except InterpolationToMissingValueError:
        return "mandatory", None
    except (OmegaConfBaseException, RecursionError) as error:
        return "other", str(error).splitlines()[0]
    return "value", OmegaConf.to_container(node) if OmegaConf.is_config(node) else node


@settings(deadline=None, max_examples=100)
@given(DOCUMENTS)
@example({"a": {"b": "${a}"}})
@example({"a": {"b": "${c}"}, "c": "${a}"})
@example({"a": "${b}", "b": "${a}"})
@example({"a": "x${b}", "b": "y${a}"})
@example({"a": {"b": "${c.a}"}, "c": {"a": "???"}})
@example({"a": {"b": "${c.a.b}"}, "c": {"a": "???"}})
@example({"a": "${b.a}", "b": "${c}", "c": {"a": "${..l}"}, "l": 1})
@example({"a": "${b.a}", "b": None})
@example({"a": "${b.a}", "b": "text"})
@example({"a": "${oc.env:GYMCTL_TEST_SET}", "b": "${a}/x", "c": {"a": "${b}"}})
@example({"a": "${oc.env:GYMCTL_TEST_UNSET,true}", "b": "${oc.env:GYMCTL_TEST_UNSET}", "c": "${a}"})
@example(
    {"a": "${oc.env:GYMCTL_TEST_UNSET,null}", "b": "${oc.env:GYMCTL_TEST_SET,null}", "c": "${oc.env:NULL}"}
)
@example({"a": "${oc.env:GYMCTL_TEST_REFERENCE}", "b": "x${a}", "c": "${oc.env:GYMCTL_TEST_MISSING}"})
@example({"l": [{"a": "${.b}", "b": "${oc.env:GYMCTL_TEST_SET}"}], "a": "${l[0].a}", "b": "${l.0.b}"})
def test_a_reference_leads_where_it_leads_in_omegaconf(document: dict[Any, Any]) -> None:
    lookup = Lookup(document)
    for path, value in leaves(document):
        if not isinstance(value, str) or "${" not in value:
            continue
        try:
            answer: tuple[str, Any] = "value", lookup.find(path, value).raw()
        except Circle:
            continue  # OmegaConf needs a second to run out of stack
        except Unresolved as error:
            answer = error.kind, error.name
        kind, expected = answer_of_omegaconf(document, path)
        if answer[0] in ("key", "variable"):
            assert kind == "other"
            assert f"'{answer[1]}' not found" in expected
        elif answer[0] == "mandatory":
            assert kind == "mandatory"
        else:
            assert repr(answer) == repr((kind, expected))


@settings(deadline=None, max_examples=100)
@given(DOCUMENTS)
@example({"a": {"b": "${..c}"}, "c": {"l": "${a.a}"}})
@example({"c": [["${...a-b}"]], "a-b": {"b": ["${...c}"]}})
@example({"a": {"b": "${c}"}, "c": {"l": "${..b}"}, "b": [{"a": "${l}"}], "l": 1})
def test_a_document_resolves_as_omegaconf_resolves_it(document: dict[Any, Any]) -> None:
    merged, origins = merge([layer("a.yaml", document)])
    try:
        resolved = resolved_by_us(merged, origins)
    except ConfigError as error:
        told = re.findall(r"^`(\S+)` ", "\n".join(error.details), re.MULTILINE)
        assert "circle" in error.what or told
        return
    expected: Any = OmegaConf.to_container(OmegaConf.create(document), resolve=True)
    assert repr(resolved) == repr({str(key): value for key, value in expected.items()})


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"a": "x${b}", "b": "y${a}"}, "a → b → a"),
        ({"a": "${b.c}", "b": "${a}"}, "a → b → a"),
        ({"a": {"b": "${c}"}, "c": {"l": "${a}"}}, "c → a → c"),
    ],
)
def test_a_circle_is_named(document: dict[Any, Any], shown: str) -> None:
    with pytest.raises(ConfigInterpolationError) as caught:
        resolved_by_us(document)
    assert caught.value.what == f"values refer to each other in a circle: {shown}"


def test_references_that_multiply_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpolation, "_MAX_VALUES", 1000)
    document = {f"a{index}": [f"${{a{index + 1}}}"] * 10 for index in range(9)}
    with pytest.raises(ConfigInterpolationError, match="expands to more than"):
        resolved_by_us({**document, "a9": 1})


def test_omegaconf_sees_only_what_a_text_can_lead_to() -> None:
    needed = {"b": {"c": "${d}"}, "d": {"e": "${..f}"}, "f": 3}
    document = {"a": {"x": "${b.c}", "y": 1}, **needed, "g": 4}
    assert tree_for(document, ("a", "x"), "${b.c}") == {"a": {"x": "${b.c}"}, **needed}
    assert tree_for(document, ("a", "x"), "${b.${g}}") is document
