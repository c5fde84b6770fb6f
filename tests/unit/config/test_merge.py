"""Layers over layers: values as OmegaConf merges them, and who wrote each (CONTRACT 1.4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gymctl.config.model import Origin
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.merge import merge
from gymctl.config.tree.origins import leaves, uniform
from gymctl.errors import ConfigError

KEYS = st.sampled_from("abc")
TREES = st.recursive(
    st.sampled_from([1, "x", None, True, "???"]) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
MAPPINGS = st.dictionaries(KEYS, TREES, max_size=3)


def layer(name: str, values: dict[str, Any]) -> Layer:
    return Layer(name, values, {key: uniform(value, Origin(name)) for key, value in values.items()})


@settings(deadline=None)
@given(st.lists(MAPPINGS, min_size=1, max_size=3))
def test_merging_agrees_with_omegaconf_and_every_leaf_has_a_writer(trees: list[dict[str, Any]]) -> None:
    layers = [layer(f"{index}.yaml", tree) for index, tree in enumerate(trees)]
    try:
        expected = OmegaConf.merge(*trees) if len(trees) > 1 else OmegaConf.create(trees[0])
    except Exception:  # noqa: BLE001 - whatever OmegaConf refuses must be our error too
        with pytest.raises(ConfigError):
            merge(layers)
        return
    merged, origins = merge(layers)
    assert merged == OmegaConf.to_container(expected)
    for path, value in leaves(merged):
        if value in ({}, []):
            continue
        writer = origins.find(*path)
        assert writer is not None
        written = trees[int(writer.source[0])]
        for step in path:
            written = written[step]
        assert written == value


# Where merging is not associative, and must not be: `???` gives way to what is below but hides nothing from
# above, null and scalars forget the mapping below them, and a reference is looked at when it is laid over.
SOLID = st.recursive(
    st.sampled_from([1, "x", True]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def shapes_agree(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(shapes_agree(one[key], other[key]) for key in one.keys() & other.keys())
    return isinstance(one, dict) == isinstance(other, dict)


@settings(deadline=None)
@given(*[st.dictionaries(KEYS, SOLID, max_size=3)] * 3)
def test_merging_is_associative_where_mappings_meet_mappings(low: Any, middle: Any, high: Any) -> None:
    assume(shapes_agree(low, middle) and shapes_agree(middle, high) and shapes_agree(low, high))

    def merged(*trees: Any) -> Any:
        return merge([layer("x.yaml", tree) for tree in trees])[0]

    assert merged(merged(low, middle), high) == merged(low, merged(middle, high)) == merged(low, middle, high)


@pytest.mark.parametrize(
    ("low", "middle", "high"),
    [
        ({"a": {"b": 1}}, {"a": None}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": 1}, {"a": {"c": 2}}),
        ({"z": {"b": 1}, "a": 1}, {"a": "${z}"}, {"a": {"c": 2}}),
    ],
    ids=["null", "scalar", "reference"],
)
def test_layers_are_merged_from_the_lowest_up(low: Any, middle: Any, high: Any) -> None:
    step_by_step = merge([layer("x.yaml", merge([layer("x.yaml", low), layer("x.yaml", middle)])[0])])[0]
    upper_first = merge([layer("x.yaml", middle), layer("x.yaml", high)])[0]
    together = merge([layer("x.yaml", tree) for tree in (low, middle, high)])[0]
    assert together == merge([layer("x.yaml", step_by_step), layer("x.yaml", high)])[0]
    assert together != merge([layer("x.yaml", low), layer("x.yaml", upper_first)])[0]


@settings(deadline=None)
@given(st.lists(MAPPINGS, min_size=1, max_size=4), st.sampled_from([1, "x", True, None]))
def test_what_the_highest_layer_says_is_the_value(trees: list[dict[str, Any]], value: object) -> None:
    """A later sibling over an earlier one, an override over a file: the top layer always has its way."""
    layers = [layer(f"{index}.yaml", tree) for index, tree in enumerate(trees)]
    top = Layer("command line", {"a": value}, {"a": Origin("++a")})
    try:
        merged, origins = merge([*layers, top])
    except ConfigError:
        return  # a mapping against a list, further down
    assert merged["a"] is value
    assert origins.where("a") == "++a"


def test_a_list_over_a_mapping_names_both_files() -> None:
    with pytest.raises(ConfigError) as caught:
        merge([layer("a.yaml", {"datasets": {"x": 1}}), layer("b.yaml", {"datasets": [1]})])
    assert caught.value.what == (
        "`datasets` is a mapping in a.yaml and a list in b.yaml; the two cannot be merged"
    )


def test_null_over_a_mapping_removes_it_and_says_who() -> None:
    merged, origins = merge([layer("a.yaml", {"d": {"x": 1}}), layer("b.yaml", {"d": None})])
    assert merged == {"d": None}
    assert origins.where("d") == "b.yaml"


def test_mandatory_never_replaces_a_value() -> None:
    merged, origins = merge([layer("a.yaml", {"d": 1}), layer("b.yaml", {"d": "???"})])
    assert merged == {"d": 1}
    assert origins.where("d") == "a.yaml"


def test_a_reference_touched_by_a_later_file_is_expanded_and_its_rest_keeps_an_origin() -> None:
    merged, origins = merge(
        [
            layer("a.yaml", {"base": {"t": 0.2, "n": 3}, "judge": "${base}"}),
            layer("b.yaml", {"judge": {"t": 0.9}}),
            layer("c.yaml", {"base": {"n": 7}}),
        ]
    )
    assert merged["judge"] == {"t": 0.9, "n": 3}
    assert (origins.where("judge", "t"), origins.where("judge", "n")) == ("b.yaml", "a.yaml")


def test_a_broken_interpolation_names_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        merge([layer("a.yaml", {"x": {"y": "${a"}})])
    assert "`x.y`" in caught.value.what
    assert caught.value.where == "a.yaml"


def test_a_broken_interpolation_in_a_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        merge([layer("a.yaml", {"policy_api_key": "sk-1234567${a"})])
    assert "`policy_api_key`" in caught.value.what
    assert "sk-1234567" not in str(caught.value)
