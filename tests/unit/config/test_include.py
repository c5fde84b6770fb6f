"""`config_paths`: order, repeats, and mistakes (CONTRACT 1.5)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymctl.errors import (
    ConfigError,
    ConfigPathNotFoundError,
    MalformedConfigPathsError,
    NoServerInstancesError,
)


@pytest.fixture
def tree(bench):
    bench.write("a.yaml", "config_paths: [b.yaml]\nk: A\n")
    bench.write("b.yaml", "k: B\n")
    bench.write("c.yaml", "config_paths: [d.yaml]\n")
    bench.write("d.yaml", "k: D\n")
    return bench


@pytest.mark.parametrize(
    ("roots", "winner", "entries"),
    [
        (("a.yaml", "c.yaml"), "D", ["a.yaml", "c.yaml", "b.yaml", "d.yaml"]),
        (("c.yaml", "a.yaml"), "A", ["c.yaml", "a.yaml", "d.yaml", "b.yaml"]),
    ],
)
def test_the_checked_examples_of_the_contract(tree, roots, winner, entries) -> None:
    document = tree.document(*roots)
    assert document["k"] == winner
    assert document["config_paths"] == ["one_server.yaml", *entries]


def test_files_are_listed_in_merge_order(tree) -> None:
    tree.document()
    names = [path.name for path in tree.load("one_server.yaml", "a.yaml", "c.yaml").files]
    assert names == ["one_server.yaml", "b.yaml", "a.yaml", "d.yaml", "c.yaml"]


def test_the_later_of_two_files_wins_key_by_key(bench) -> None:
    bench.write("base.yaml", "judge: {prompt: A, mode: strict}\n")
    bench.write("over.yaml", "judge: {prompt: B}\n")
    assert bench.document("base.yaml", "over.yaml")["judge"] == {"prompt": "B", "mode": "strict"}
    assert bench.document("over.yaml", "base.yaml")["judge"] == {"prompt": "A", "mode": "strict"}


def test_a_file_beats_what_it_includes(bench) -> None:
    bench.write("base.yaml", "judge: {prompt: A, mode: strict}\n")
    bench.write("top.yaml", "config_paths: [base.yaml]\njudge: {mode: lenient}\n")
    assert bench.document("top.yaml")["judge"] == {"prompt": "A", "mode": "lenient"}


def test_a_file_included_twice_keeps_its_first_place_and_is_told(bench) -> None:
    bench.write("one.yaml", "config_paths: [shared.yaml]\nk: one\n")
    bench.write("two.yaml", "config_paths: [shared.yaml]\n")
    bench.write("shared.yaml", "k: shared\n")
    bench.document()
    config = bench.load("one_server.yaml", "one.yaml", "two.yaml")
    assert config.document["k"] == "one"
    assert "`shared.yaml` is included more than once" in config.warnings[0]


def test_files_that_include_each_other_end(bench) -> None:
    bench.write("a.yaml", "config_paths: [b.yaml]\nk: A\n")
    bench.write("b.yaml", "config_paths: [a.yaml]\nk: B\n")
    assert bench.document("a.yaml")["k"] == "A"


def test_env_yaml_beats_files_and_overrides_beat_env_yaml(bench) -> None:
    bench.write("a.yaml", "x: file\ny: file\nz: file\n")
    bench.write("env.yaml", "y: env\nz: env\n")
    document = bench.document("a.yaml", overrides=("++z=flag",))
    assert (document["x"], document["y"], document["z"]) == ("file", "env", "flag")


def test_config_paths_may_live_in_env_yaml(bench) -> None:
    bench.document()
    bench.write("env.yaml", "config_paths: [one_server.yaml]\n")
    assert list(bench.load().servers) == ["weather"]


def test_raw_config_paths_join_the_named_files(tree) -> None:
    document = tree.document("a.yaml", overrides=("+config_paths=[c.yaml]", "++config_paths=[d.yaml]"))
    assert document["config_paths"] == ["one_server.yaml", "a.yaml", "c.yaml", "d.yaml", "b.yaml"]


def test_a_moved_path_is_rewritten_with_a_warning(bench) -> None:
    bench.write("environments/hermes_reasoning_gym/config.yaml", "k: new\n")
    old = "environments/reasoning_gym_hermes/config.yaml"
    bench.document()
    config = bench.load("one_server.yaml", old)
    assert config.document["k"] == "new"
    assert "has moved" in config.warnings[0]


@pytest.mark.parametrize(
    ("text", "error", "what", "where"),
    [
        (
            "config_paths: other.yaml\n",
            MalformedConfigPathsError,
            "got the string `other.yaml`",
            "bad.yaml:1:1",
        ),
        (
            "k: 1\nconfig_paths: [7]\n",
            MalformedConfigPathsError,
            "`config_paths[0]` must be a path",
            "bad.yaml:2:16",
        ),
        (
            "config_paths: [nowhere.yaml]\n",
            ConfigPathNotFoundError,
            "`nowhere.yaml` not found",
            "bad.yaml:1:16",
        ),
        ("a:\n\tb: 1\n", ConfigError, "not valid YAML", "bad.yaml:2:1"),
        ("", NoServerInstancesError, "starts no server", None),
        ("- a\n", ConfigError, "must be a mapping, got a list", "bad.yaml:1:1"),
    ],
    ids=["string", "number", "missing", "tab", "empty", "list"],
)
def test_each_malformed_file_has_its_own_message(bench, text, error, what, where) -> None:
    bench.write("bad.yaml", text)
    with pytest.raises(error) as caught:
        bench.load("bad.yaml")
    assert what in caught.value.what
    assert caught.value.where == where


def test_a_missing_file_lists_every_place_and_a_near_name(bench) -> None:
    bench.write("model.yaml", "k: 1\n")
    with pytest.raises(ConfigPathNotFoundError) as caught:
        bench.load("modell.yaml")
    assert f"  {bench.folder / 'modell.yaml'}" in caught.value.details
    assert caught.value.hint == "did you mean `model.yaml`?"


def test_a_pipe_is_not_said_to_be_missing(bench) -> None:
    os.mkfifo(bench.folder / "a.yaml")
    with pytest.raises(ConfigPathNotFoundError, match="is a pipe or a device, no config file"):
        bench.load("a.yaml")


def test_two_files_in_one_flag_are_explained(bench) -> None:
    with pytest.raises(ConfigPathNotFoundError) as caught:
        bench.load("a.yaml,b.yaml")
    assert caught.value.hint == "give one file per --config"


FILES = [f"f{number}.yaml" for number in range(7)]
GRAPHS = st.fixed_dictionaries({name: st.lists(st.sampled_from(FILES), max_size=3) for name in FILES})


def discovered(roots: list[str], graph: dict[str, list[str]]) -> tuple[list[str], dict[str, list[str]]]:
    """CONTRACT 1.5, word for word: walk the growing list; an entry that is listed is not included again."""
    listed: list[str] = []
    children: dict[str, list[str]] = {"": []}

    def append(parent: str, entries: list[str]) -> None:
        for entry in entries:
            if entry not in listed:
                listed.append(entry)
                children[parent].append(entry)
                children[entry] = []

    append("", roots)
    for position in range(len(FILES)):
        if position < len(listed):
            append(listed[position], graph[listed[position]])
    return listed, children


def post_order(name: str, children: dict[str, list[str]]) -> Iterator[str]:
    for child in children[name]:
        yield from post_order(child, children)
    yield name


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(FILES), min_size=1, max_size=3), GRAPHS)
def test_any_graph_of_files_is_merged_in_post_order_of_its_include_tree(bench, roots, graph) -> None:
    for name, entries in graph.items():
        bench.write(name, f"config_paths: {entries}\nlast: {name}\n{name[:2]}: 1\n".replace("'", ""))
    bench.document()
    config = bench.load(*roots, "one_server.yaml")
    listed, children = discovered([*roots, "one_server.yaml"], {**graph, "one_server.yaml": []})
    order = list(post_order("", children))[:-1]
    assert config.document["config_paths"] == listed
    assert [path.name for path in config.files] == order
    assert config.document["last"] == [name for name in order if name in FILES][-1]
    assert {name[:2] for name in FILES if name in listed} == {key for key in config.document if key[0] == "f"}
