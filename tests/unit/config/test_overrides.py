"""Command line tokens: what they set, what they refuse, and that no text is changed (CONTRACT 1.8)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gymctl.config import overrides
from gymctl.config.overrides import Override, layer
from gymctl.config.problems import Problems
from gymctl.errors import ConfigError

HARD = [
    "sk-ab+cd/ef==",
    "http://h:8000/v1?x=1&y=2",
    "a|b",
    "50%",
    "#1",
    "你好",
    "mlx5_0:1,mlx5_3:1",
    "C:\\x",
    "[1",
    "{a",
    "it's",
    'say "x"',
    "\\",
    "f(x",
    "${",
    "-1",
    "",
]


def parse(tokens: Sequence[str]) -> list[Override]:
    problems = Problems()
    parsed = overrides.parse(tokens, problems)
    problems.stop()
    return parsed


def values(*tokens: str) -> dict:
    return layer(parse(tokens)).values


def through_the_hint(error: ConfigError, key: str) -> object:
    """Do what the hint says: take the quoted token through a shell and parse it again."""
    found = re.search(r"for text, quote it twice: (.*)", error.hint or "", re.DOTALL)
    assert found, error.hint
    return values(*shlex.split(found[1]))[key]


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20))
@example("a,b")
@example("'quoted'")
def test_text_arrives_unchanged_or_the_error_shows_the_quoting_that_works(text: str) -> None:
    try:
        value = values(f"++note={text}")["note"]
    except ConfigError as error:
        if "quote it twice" in (error.hint or ""):
            assert through_the_hint(error, "note") == text
        else:
            assert "env.yaml" in (error.hint or "")
        return
    if isinstance(value, str) and not is_grammar(text):
        assert value == text


def is_grammar(text: str) -> bool:
    """Texts that the grammar reads on purpose: quotes, escapes, blanks at the ends, functions."""
    return text != text.strip() or any(mark in text for mark in "\\'\"(") or text != text.rstrip("\t ")


@pytest.mark.parametrize("text", HARD)
def test_hard_values_of_real_life(text: str) -> None:
    try:
        value = values(f"++note={text}")["note"]
    except ConfigError as error:
        assert through_the_hint(error, "note") == text
        return
    assert value == (-1 if text == "-1" else text)


def test_a_comma_never_becomes_a_sweep() -> None:
    with pytest.raises(ConfigError) as caught:
        values("++note=a,b")
    assert "sweep" in caught.value.what
    assert caught.value.details == ("for a list: '++note=[a,b]'",)


@pytest.mark.parametrize("text", ["choice(a,b)", "range(1,3)", "glob(*)", "interval(1,2)"])
def test_sweep_functions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="sweep"):
        values(f"++note={text}")


def test_secrets_stay_out_of_error_texts() -> None:
    for value in ("sk-1,sk-2", "[sk-1"):
        with pytest.raises(ConfigError) as caught:
            values(f"++policy_api_key={value}")
        assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ("[1,x]", [1, "x"]),
        ("{a: 1}", {"a": 1}),
        ("'x y'", "x y"),
        ("${other}", "${other}"),
        ("1e5", 100000.0),
    ],
)
def test_typed_literals(text: str, value: object) -> None:
    assert values(f"+k={text}") == {"k": value}


def test_dots_make_levels_and_tokens_add_up() -> None:
    assert values("+a.b=1", "++a.c=2", "+a={d: 3}") == {"a": {"b": 1, "c": 2, "d": 3}}


def test_two_plus_replaces_what_an_earlier_token_set() -> None:
    assert values("+k=1", "++k=2") == {"k": 2}


@pytest.mark.parametrize(
    ("tokens", "what"),
    [
        (["a.b=1"], "without + or ++"),
        (["~a"], "cannot be removed"),
        (["~a=1"], "cannot be removed"),
        (["+k=1", "+k=2"], "set twice, by `+k` and `+k`"),
        (["+k=[1]", "+k=[2]"], "set twice"),
        (["+k={a: 1}", "+k={a: 2}"], "set twice"),
        (["+a.b=1", "+a={b: 2}"], "set twice"),
        (["+a=1", "+a.b=2"], "set twice"),
        (["+k"], "`=` is missing"),
        (["+a/b=1"], "config groups"),
        (["+a@b=1"], "config groups"),
        (["++=1"], "override key"),
        (["++mä.x=1"], "override key"),
    ],
)
def test_refused_tokens(tokens: list[str], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        values(*tokens)
    assert what in caught.value.what


def test_a_bare_key_is_told_how_to_write_it() -> None:
    with pytest.raises(ConfigError) as caught:
        values("a.b=1")
    assert "`++a.b=<value>`" in (caught.value.hint or "")
