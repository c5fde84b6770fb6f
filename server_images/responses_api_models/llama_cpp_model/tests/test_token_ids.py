"""Which of an answer's tokens have a log probability, when only some are reported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.servers.models.server import ConversionError

_PATH = Path(__file__).parents[1] / "token_ids.py"
_SPEC = importlib.util.spec_from_file_location("llama_cpp_token_ids", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
token_ids = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = token_ids
_SPEC.loader.exec_module(token_ids)
aligned = token_ids.aligned


def test_all_reported():
    assert aligned([5, 5, 6], [(5, -1.0), (5, -2.0), (6, -3.0)]) == [-1.0, -2.0, -3.0]


def test_the_tokens_of_half_a_character_are_not_known():
    assert aligned([7, 90, 91, 92, 7, 90], [(7, -1.0), (92, -2.0), (7, -3.0)]) == [
        -1.0,
        None,
        None,
        -2.0,
        -3.0,
        None,
    ]


def test_what_could_belong_to_two_tokens_belongs_to_none():
    assert aligned([90, 91, 91, 7], [(91, -1.0), (7, -2.0)]) == [None, None, None, -2.0]


def test_a_token_that_was_not_generated_is_an_error():
    with pytest.raises(ConversionError):
        aligned([1, 2], [(3, -1.0)])


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_a_score_never_reaches_another_token(drawn: list[tuple[int, bool]]):
    tokens = [token for token, _ in drawn]
    scores = [float(place) for place in range(len(tokens))]
    reported = [(token, scores[place]) for place, (token, is_reported) in enumerate(drawn) if is_reported]
    for found, true in zip(aligned(tokens, reported), scores, strict=True):
        assert found is None or found == true
