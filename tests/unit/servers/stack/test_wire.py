"""JSON in and out: nothing that JSON writers produce kills a server or loses digits."""

from __future__ import annotations

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.episodes import EpisodeId
from gymctl.servers.stack.wire import dumps, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_is_read_back(value):
    assert loads(dumps(value)) == value
    assert loads(json.dumps(value).encode()) == value


def test_huge_integers_keep_their_digits():
    number = 123456789012345678901234567890
    assert loads(b"[123456789012345678901234567890]") == [number]
    assert json.loads(dumps({"n": number})) == {"n": number}


def test_nan_and_lone_surrogates_are_read():
    assert math.isnan(loads(b'{"x": NaN}')["x"])
    assert loads(b'"\\ud800"') == "\ud800"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("ok \ud83d", "ok \ufffd"),
        ("\ude00 ok", "\ufffd ok"),
        ("a\ud83d" + "\ude00b", "a\U0001f600b"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("\\ud83d \ud83d", "\\ud83d \ufffd"),
    ],
)
def test_b93_half_an_emoji_is_written_so_that_strict_readers_take_it(text, written):
    assert orjson.loads(dumps({"x": text})) == {"x": written}


@pytest.mark.parametrize("body", [b"", b"{", b"{'a': 1}", b"\xff", b"[1] 2"])
def test_what_is_not_json_raises_value_error(body):
    with pytest.raises(ValueError):
        loads(body)


def test_models_inside_plain_values_are_written():
    assert dumps({"id": EpisodeId(rollout_id="0-1")}) == b'{"id":{"rollout_id":"0-1","attempt":0}}'


def test_nesting_beyond_the_stack_raises_value_error():
    with pytest.raises(ValueError, match="nested"):
        loads(b"[" * 100_000)
