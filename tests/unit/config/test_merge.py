"""Layers over layers: values as OmegaConf merges them, and who wrote each (CONTRACT 1.4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gymctl.config.files import Layer
from gymctl.config.merge import merge
from gymctl.config.model import Origin
from gymctl.config.origins import leaves, uniform
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
