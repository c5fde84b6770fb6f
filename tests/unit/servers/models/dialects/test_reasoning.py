"""Think tags: what is taken out, what stays, and that repeated tags cost no more than their length."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.servers.models.dialects.reasoning import split, wrap

PAIR = re.compile(r"<think>(.*?)</think>", re.DOTALL)


@pytest.mark.parametrize(
    ("text", "thoughts", "rest"),
    [
        ("plain", [], "plain"),
        ("<think>a</think>b", ["a"], "b"),
        ("x<think>a</think>y<think>b\n</think>z", ["a", "b\n"], "xyz"),
        ("<think>never closed", [], "<think>never closed"),
        ("</think><think>a</think><think>", ["a"], "</think><think>"),
        ("<think>a<think>b</think>c</think>OK", ["a<think>b</think>c"], "OK"),
        ("<think><think>a</think>b", ["<think>a"], "b"),
        ("no tag </think> OK", [], "no tag </think> OK"),
    ],
)
def test_closed_pairs_are_thoughts_and_the_rest_is_text(text, thoughts, rest):
    assert split(text) == (thoughts, rest)


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", "\n", "<"])).map("".join))
def test_nothing_is_lost_and_pairs_without_pairs_inside_are_those_of_the_pattern(text):
    thoughts, rest = split(text)
    assert len("".join(thoughts)) + len(rest) + len(thoughts) * len("<think></think>") == len(text)
    if not any("<think>" in thought for thought in PAIR.findall(text)):
        assert (thoughts, rest) == (PAIR.findall(text), PAIR.sub("", text))


@given(st.lists(st.text(alphabet="ab \n", min_size=1)), st.text(alphabet="ab <>"))
def test_what_is_wrapped_is_split_again(thoughts, text):
    assert split(wrap(thoughts) + text) == (thoughts, text)


def test_a_model_that_repeats_the_opening_tag_holds_nothing_up():
    begin = time.process_time()
    split("<think>" * 50_000)
    split("<think>" * 50_000 + "</think>" * 50_000)
    assert time.process_time() - begin < 2  # the pattern needs most of a minute
