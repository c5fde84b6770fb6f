"""One YAML file: OmegaConf's scalars, line numbers, and mistakes with their place."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader  # no public name

from gymctl.config.reading import files
from gymctl.config.reading.files import parse
from gymctl.config.tree.origins import Origins
from gymctl.errors import ConfigError

KEYS = st.text("abcdefgh_", min_size=1, max_size=6)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False)
    | st.text(max_size=12).filter(lambda text: "${" not in text)
    | st.sampled_from(["1e5", "2024-01-01", "1:30", "0012", "no", "1_000", "~", ".5e+3"])
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_a_file_means_what_it_means_to_omegaconf(tree: dict[str, Any]) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True)
    assert parse(text.encode(), "x.yaml").values == OmegaConf.to_container(OmegaConf.create(text or "{}"))


@settings(deadline=None, max_examples=500)
@given(st.text("+-0123456789._eE:xob", min_size=1, max_size=8))
@example("1e5").via("an exponent")
@example("1_0.5E+3").via("an exponent after a point")
@example("1__0e5").via("two underscores")
@example("2024-01-01").via("a date")
def test_a_plain_scalar_is_of_the_type_that_it_has_for_omegaconf(text: str) -> None:
    def tags(loader: Any) -> object:
        return loader("").resolve(yaml.ScalarNode, text, (True, False))

    assert tags(files._fast_loader()) == tags(files._loader()) == tags(get_yaml_loader())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e5", 100000.0),
        ("2024-01-01", "2024-01-01"),
        ("0012", 10),
        ("1:30", 90),
        ("no", False),
        ("1_000", 1000),
    ],
)
def test_scalars_follow_the_rules_of_the_peer(text: str, value: object) -> None:
    assert parse(f"a: {text}".encode(), "x.yaml").values == {"a": value}


def test_every_value_knows_the_line_and_column_of_its_key() -> None:
    layer = parse(b"a: 1\nb:\n  c: 2\n  d:\n  - x\n  - {e: 3}\n", "x.yaml")
    origins = Origins(layer.origins)
    assert [origins.where(*path) for path in [("a",), ("b", "c"), ("b", "d", 0), ("b", "d", 1, "e")]] == [
        "x.yaml:1:1",
        "x.yaml:3:3",
        "x.yaml:5:5",
        "x.yaml:6:6",
    ]


def test_merge_keys_and_aliases_are_expanded() -> None:
    layer = parse(b"x: &a {k: 1}\ny:\n  <<: *a\n  z: *a\n", "x.yaml")
    assert layer.values["y"] == {"k": 1, "z": {"k": 1}}


def test_an_empty_file_is_an_empty_layer() -> None:
    assert parse(b"# nothing\n", "x.yaml").values == {}


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        (b"a: 1\nb: 2\na: 3\n", "`a` stands twice, in lines 1 and 3", "x.yaml:3:1"),
        (b"a:\n  b: 1\n  b: 2\n", "`b` stands twice, in lines 2 and 3", "x.yaml:3:3"),
        (b"a:\n\tb: 1\n", "not valid YAML", "x.yaml:2:1"),
        (b"a: [1, 2\nb: 3\n", "not valid YAML", "x.yaml:2:2"),
        (b"- 1\n- 2\n", "must be a mapping, got a list", "x.yaml:1:1"),
        (b"\n\njust text\n", "must be a mapping, got a single value", "x.yaml:3:1"),
        (b"a: {b: ???}\n", "not valid YAML", "x.yaml:1:8"),
        (b"a: !!python/object/apply:os.system [x]\n", "tag", "x.yaml:1:4"),
        (b"a: !!python/name:os.system x\n", "not valid YAML", "x.yaml:1:4"),
        (b"a: &x [*x]\n", "contains itself", "x.yaml:1:4"),
        (b"a: 1\n---\nb: 2\n", "not valid YAML", "x.yaml:2:1"),
        (b"[1]: 2\n", "must be a plain value", "x.yaml:1:1"),
        (b"a: \xff\xfe\n", "not valid YAML", "x.yaml"),
    ],
)
def test_a_broken_file_is_told_with_its_place(text: bytes, what: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "x.yaml")
    assert what in caught.value.what
    assert caught.value.where == where


def test_a_tab_is_named_in_the_hint() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(b"a:\n\tb: 1\n", "x.yaml")
    assert "tab" in (caught.value.hint or "")


def test_a_nest_of_aliases_does_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 9):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    with pytest.raises(ConfigError, match="expands to more than"):
        parse("\n".join(lines).encode(), "x.yaml")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"a: !!int x\n", "cannot be read as the YAML int"),
        (b"a: !!float x\n", "cannot be read as the YAML float"),
        (b"a: !!bool maybe\n", "cannot be read as the YAML bool"),
        (b"a: !!timestamp x\n", "cannot be read as the YAML timestamp"),
        (b"a: " + b"9" * 5000 + b"\n", "cannot be read as the YAML int"),
        (b"a: !!binary aGk=\n", "the YAML tag `!!binary` is not allowed"),
        (b"a: " + b"[" * 51 + b"]" * 51 + b"\n", "nested more than 50 levels deep"),
        (b"a: " + b"{" * 2000, "nested too deeply"),
    ],
)
def test_values_that_nothing_can_hold_are_errors_with_their_place(text: bytes, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "x.yaml")
    assert what in caught.value.what
    assert str(caught.value.where).startswith("x.yaml")


@pytest.mark.parametrize("start", ["*", "!", "&", "%", "@", "`"])
def test_a_key_that_yaml_takes_for_syntax_is_not_printed(start: str) -> None:
    """Unquoted, `policy_api_key: *abc` is an alias: the error says what to do and not what the key is."""
    with pytest.raises(ConfigError) as caught:
        parse(f"policy_api_key: {start}sk-4711 x: y\n".encode(), "x.yaml")
    assert "sk-4711" not in str(caught.value)
    assert str(caught.value.where).startswith("x.yaml:1")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('a: 1\nb: "open\nc: 2\n', "a quoted text that is not closed began in line 2"),
        ("a: [1,\n  2\nb: 3\n", "a `[` that is not closed began in line 1"),
        ("a:\n  {b: 1\nc: 3\n", "a `{` that is not closed began in line 2"),
    ],
)
def test_what_is_not_closed_is_named_with_the_line_where_it_began(text, hint) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), "x.yaml")
    assert caught.value.hint == hint
