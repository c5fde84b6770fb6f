"""Command line tokens: what they set, what they refuse, and that no text is changed (CONTRACT 1.8)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gymctl.config.problems import Problems
from gymctl.config.reading import overrides
from gymctl.config.reading.overrides import Override, layer
from gymctl.errors import ConfigError, UsageError

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
    return OmegaConf.create(values(*shlex.split(found[1])))[key]


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


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@example("${a}")
@example("\\\\${a}\\${b")
@example("a\n\r\n")
def test_flags_and_files_set_text_as_it_stands(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "value"
    file.write_bytes(text.encode() + b"\n")
    for override in (Override.flag("--model", "a", text), Override.file(f"a={file}", Path("/"))):
        tree = OmegaConf.create({**layer([override]).values, "b": "${a}"})
        given = text.removesuffix("\r") if "file" in override.name else text
        # `???` has one meaning, and no way to escape it.
        if given != "???":
            assert OmegaConf.to_container(tree, resolve=True) == {"a": given, "b": given}


@pytest.mark.parametrize(
    ("token", "what"),
    [
        ("a", "a KEY=FILE is needed"),
        ("=x", "is no KEY=FILE"),
        ("a=", "is no KEY=FILE"),
        ("++a=x", "is no KEY=FILE"),
        ("a=nothing", "cannot be read: No such file"),
        ("a=.", "cannot be read: Is a directory"),
        ("a=x\0y", "is no UTF-8 text"),
        ("a=latin1", "is no UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_a_value_is_a_usage_error(tmp_path: Path, token: str, what: str) -> None:
    (tmp_path / "latin1").write_bytes(b"\xe4")
    with pytest.raises(UsageError, match=re.escape(what)):
        Override.file(token, tmp_path)


def test_a_secret_in_the_place_of_the_file_is_not_repeated(tmp_path: Path) -> None:
    for token in ("policy_api_key=sk-1234567", "sk-1234567", "=sk-1234567"):
        with pytest.raises(UsageError) as caught:
            Override.file(token, tmp_path)
        assert "sk-1234567" not in f"{caught.value.what}{caught.value.where}{caught.value.hint}"


def test_a_key_set_by_a_file_and_a_flag_is_set_twice(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("x")
    flag = Override.flag("--model-api-key", "policy_api_key", "y")
    with pytest.raises(ConfigError, match="set twice, by `--model-api-key` and `--set-file policy_api_key`"):
        layer([flag, Override.file("policy_api_key=key", tmp_path)])
