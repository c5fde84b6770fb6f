"""`config diff`: what differs, in document order, with the writers of both sides and no secret."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gymctl.cli.output import inline
from gymctl.config.telling.diff import Difference, _differing, diff
from gymctl.config.tree.origins import leaves


def told(found: list[Difference]) -> list[tuple[str, ...]]:
    return [
        (
            item.key,
            *("-" if side is None else f"{inline(side.value)} ({side.origin})" for side in (item.a, item.b)),
        )
        for item in found
    ]


def test_what_differs_is_told_with_both_origins_in_document_order(stack) -> None:
    stack.write("a.yaml", "judge: {prompt: A, mode: strict, steps: [1, 2]}\nonly: 1\n")
    stack.write("b.yaml", "judge: {prompt: B, new: 1, mode: strict, steps: [1]}\nonly: {deep: 1.0}\n")
    both = ("model.yaml", "weather.yaml")
    found = diff(stack.load(*both, "a.yaml"), stack.load(*both, "b.yaml"))
    assert told(found) == [
        ("judge.prompt", "A (a.yaml:1:9)", "B (b.yaml:1:9)"),
        ("judge.steps[1]", "2 (a.yaml:1:45)", "-"),
        ("judge.new", "-", "1 (b.yaml:1:20)"),
        ("only", "1 (a.yaml:2:1)", "-"),
        ("only.deep", "-", "1.0 (b.yaml:2:8)"),
    ]


def test_equal_configurations_do_not_differ_whatever_their_files_are_called(stack) -> None:
    stack.write("a.yaml", "x: 1\n")
    stack.write("b.yaml", "x: 1\n")
    both = ("model.yaml", "weather.yaml")
    assert diff(stack.load(*both, "a.yaml"), stack.load(*both, "b.yaml")) == []


def test_types_count_and_a_changed_secret_is_told_without_being_shown(stack) -> None:
    stack.write("a.yaml", "x: 1\ny: 1\nz: null\nmy_key: sk-first-secret\nnote: has sk-first-secret\n")
    stack.write("b.yaml", "x: true\ny: '1'\nmy_key: sk-other-secret\nnote: has sk-other-secret\n")
    both = ("model.yaml", "weather.yaml")
    found = diff(stack.load(*both, "a.yaml"), stack.load(*both, "b.yaml"))
    assert [(key, a.split(" (")[0], b.split(" (")[0]) for key, a, b in told(found)] == [
        ("x", "1", "true"),
        ("y", "1", "1"),
        ("z", "null", "-"),
        ("my_key", "****", "****"),
        ("note", "has ****", "has ****"),
    ]


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(documents, documents)
def test_differences_are_exactly_the_leaves_that_are_not_the_same(a, b) -> None:
    if not a or not b:
        return
    ours, theirs = ({path: repr(value) for path, value in leaves(side)} for side in (a, b))
    expected = {path for path in {*ours, *theirs} if ours.get(path) != theirs.get(path)}
    found = list(_differing(a, b, ()))
    assert {path for path, _, _ in found} == expected
    assert all((path in ours, path in theirs) == (in_a, in_b) for path, in_a, in_b in found)
    assert list(_differing(a, a, ())) == []
