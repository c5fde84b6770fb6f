"""Project names that Compose, images and folders all accept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.config.project import PATTERN, display_name, plain, project_name
from gymctl.errors import UsageError

HERE = Path("/work")
FILES = (Path("/home/you/benchmarks/gsm8k/config.yaml"),)


@pytest.mark.parametrize(
    "display",
    [
        "My.Project",
        "_x",
        "-y",
        "a" * 57 + "-" + "b" * 32,
        "a" * 62 + "-" + "b" * 27,
        "mit Leerzeichen äöü",
        "",
        "日本",
    ],
)
def test_names_made_of_anything(display: str) -> None:
    """B38."""
    name = project_name(display, HERE, FILES)
    assert PATTERN.fullmatch(name)
    assert len(name) <= 63
    assert plain(display)[-1].isalnum()  # also where the cut falls on a dash


@settings(deadline=None)
@given(st.text(max_size=100))
def test_names_made_of_any_text(display: str) -> None:
    name = project_name(display, HERE, FILES)
    assert PATTERN.fullmatch(name)
    assert len(name) <= 63


@given(st.text(max_size=100))
def test_a_refused_name_comes_with_one_that_is_taken(name: str) -> None:
    try:
        assert project_name("", HERE, FILES, name) == name
    except UsageError as error:
        near = str(error.hint).split("`")[1]
        assert project_name("", HERE, FILES, near) == near


@pytest.mark.parametrize(("name", "near"), [("a", "a-1"), ("Not Good", "not-good"), ("日本", "gym")])
def test_what_a_refused_name_comes_with(name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        project_name("", HERE, FILES, name)
    assert f"2 to 63 characters, like `{near}`" in str(caught.value.hint)


def test_a_name_tells_folders_and_selections_apart() -> None:
    """B37."""
    model = Path("/home/you/model.yaml")
    names = {
        project_name("gsm8k", HERE, FILES),
        project_name("gsm8k", Path("/other"), FILES),
        project_name("gsm8k", HERE, (*FILES, model)),
    }
    assert len(names) == 3
    assert project_name("gsm8k", HERE, FILES) in names


@pytest.mark.parametrize(
    ("file", "name"),
    [("benchmarks/gsm8k/config.yaml", "gsm8k"), ("weather.yaml", "weather"), ("a/b/hard.yaml", "hard")],
)
def test_the_first_selected_file_gives_the_name(file: str, name: str) -> None:
    assert display_name([Path(file), Path("other.yaml")]) == name


def test_an_explicit_name_wins(stack) -> None:
    assert stack.load("model.yaml", "weather.yaml", project="mine").project == "mine"


@pytest.mark.parametrize("name", ["", "a", "MyProj", "my.proj", "_x", "x-", "a b", "a" * 64, "../x"])
def test_an_explicit_name_is_checked(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        project_name("gsm8k", HERE, FILES, explicit=name)
    assert caught.value.where == "--project"
    assert plain(name) in (caught.value.hint or "")


def test_the_same_command_has_the_same_name(stack) -> None:
    first = stack.load("model.yaml", "weather.yaml").project
    assert first.startswith("model-")
    assert stack.load("model.yaml", "weather.yaml", overrides=("++x=1",)).project == first
