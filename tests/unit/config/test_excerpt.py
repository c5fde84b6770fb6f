"""An error in a YAML file shows its line: with a caret, without a secret, never with a second error."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.cli.output import Console
from gymctl.config.reading.files import parse
from gymctl.config.telling.excerpt import excerpt
from gymctl.errors import ConfigError, ConfigErrors, Place

SECRET = "sk-very-secret-0815"


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def shown(text: str, line: int, column: int, name: str = "a.yaml") -> list[str]:
        (tmp_path / name).write_text(text)
        return excerpt(Place.at(name, line, column))

    return shown


def test_the_line_stands_below_the_arrow_with_a_caret_under_the_column(shown) -> None:
    shown("verbose: 1\nserver:\n  num_repeats: 0\n", 1, 1)
    error = ConfigError(
        "`num_repeats` must be at least 1, got 0", where=Place.at("a.yaml", 3, 3), hint="remove the key"
    )
    assert printed(error) == (
        "error: `num_repeats` must be at least 1, got 0\n"
        "  --> a.yaml:3:3\n"
        "   3 |   num_repeats: 0\n"
        "     |   ^\n"
        "hint: remove the key\n"
    )
    assert printed(ConfigErrors([error, error])).count("   3 |   num_repeats: 0\n") == 2


def test_a_place_that_cannot_be_shown_is_only_named(shown, tmp_path) -> None:
    assert shown("a: 1\n", 7, 1) == []
    assert shown("", 1, 1) == []
    assert excerpt(Place.at("gone.yaml", 1, 1)) == []
    assert excerpt(Place.at(".", 1, 1)) == []
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\n")
    assert excerpt(Place.at("latin.yaml", 1, 1)) == []
    assert printed(ConfigError("wrong", where=Place.at("gone.yaml", 1, 1))) == (
        "error: wrong\n  --> gone.yaml:1:1\n"
    )
    assert printed(ConfigError("wrong", where="--model-url")) == "error: wrong\n  --> --model-url\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "expected", "caret"),
    [
        (f"api_key: {SECRET}\n", 1, 1, "api_key: ****", 0),
        (f"{{entrypoint: app.py, api_key: {SECRET}, port: x}}\n", 1, 53, None, 37),
        (f"'api_key': '{SECRET}'\n", 1, 1, "'api_key': ****", 0),
        (f"server_key: |\n  line one\n  {SECRET}\n  line three\nport: 1\n", 3, 3, "  ****", 2),
        (f"server_key: |\n  {SECRET}\nport: 1\n", 1, 1, "server_key: ****", 0),
        (f"server_key: |\n  {SECRET}\nport: 1\n", 3, 1, "port: 1", 0),
        (f"{SECRET}\n", 1, 1, "****", 0),
        (f"- {SECRET}\n", 1, 3, "- ****", 2),
        (f"tokens:\n- name: {SECRET}\n", 2, 9, "- name: ****", 8),
        (f"api_key: *{SECRET}\n", 1, 10, "api_key: ****", 9),
        (f"headers:\n  X-Mine: {SECRET}\n", 2, 3, "  X-Mine: ****", 2),
        (f"keys:\n- {SECRET}\n", 2, 3, "- ****", 2),
        (f"note: with {SECRET}\napi_key: {SECRET}\n", 1, 1, "note: with ****", 0),
        ("url: http://me:hunter22@host/v1\n", 1, 1, "url: http://****@host/v1", 0),
        ("api_key: ${policy_api_key}\n", 1, 1, "api_key: ${policy_api_key}", 0),
        ("api_key: ???\n", 1, 1, "api_key: ???", 0),
        # below a syntax error nothing is known
        (f"a: [1\napi_key: {SECRET}\n", 2, 8, "api_key: ****", 7),
        (f"a: [1\napi_key {SECRET}\n", 2, 1, "api_key ****", 0),
        (f"a: [1\nserver_key: |\n  x\n  {SECRET}\n", 4, 3, "  ****", 2),
        ("a:\n\tport: 1\n", 2, 1, "→port: 1", 0),
    ],
)
def test_secrets_are_hidden_by_key_and_by_value(shown, text, line, column, expected, caret) -> None:
    found, under = shown(text, line, column)
    assert SECRET not in found
    assert expected is None or found == f"   {line} | {expected}"
    assert under == "     | " + " " * caret + "^"


@pytest.mark.parametrize("text", [f"policy_api_key {SECRET}\n", f"{SECRET}\n", f"a: [\nb: {SECRET}\n"])
def test_a_line_of_env_yaml_that_cannot_be_understood_is_taken_for_a_secret(shown, text) -> None:
    for line in range(1, text.count("\n") + 1):
        assert SECRET not in "".join(shown(text, line, 1, "env.yaml"))


def test_a_secret_of_env_yaml_is_hidden_in_other_files(shown, tmp_path) -> None:
    (tmp_path / "env.yaml").write_text(f"policy_api_key: {SECRET}\n")
    assert shown(f"note: {SECRET}\n", 1, 1)[0] == "   1 | note: ****"


def test_a_long_line_is_cut_around_the_caret(shown) -> None:
    line = "{" + ", ".join(f"key{index}: {index}" for index in range(100)) + "}"
    column = line.index("key60")
    found, under = shown(f"top: {line}\n", 1, column + 6)
    assert len(found) < 120
    assert found[under.index("^") :].startswith("key60")
    assert found.count("…") == 2


def test_control_characters_do_not_reach_the_terminal_and_wide_ones_keep_the_caret_in_place(shown) -> None:
    assert shown("note: a\x1b[31m\n", 1, 1)[0] == "   1 | note: a\N{REPLACEMENT CHARACTER}[31m"
    assert shown("你: {b: 1}\n", 1, 5)[1] == "     | " + " " * 5 + "^"


def test_errors_of_the_reader_know_their_place(shown) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(b"a:\n  b: 1\n  b: 2\n", "a.yaml")
    assert isinstance(caught.value.where, Place)
    assert (caught.value.where.line, caught.value.where.column) == (3, 3)


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.sampled_from("ab: \n-{}[],'\"|>&*#\t"), max_size=60),
    st.integers(1, 6),
    st.integers(1, 20),
)
def test_any_text_any_place_gives_two_lines_or_none(tmp_path_factory, text, line, column) -> None:
    path = tmp_path_factory.mktemp("excerpt") / "a.yaml"
    path.write_text(text)
    assert len(excerpt(Place.at(str(path), line, column))) in (0, 2)


def printed(error: ConfigError) -> str:
    stderr = io.StringIO()
    Console(err=stderr).error(error)
    return stderr.getvalue()
