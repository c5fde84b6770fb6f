"""Values of overrides that are read without Hydra's parser mean what they mean to it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.config.reading import grammar

PARSER = OverridesParser.create()
WORDS = st.text("aAzZ09_./-", max_size=6) | st.sampled_from(
    [
        "null",
        "True",
        "NaN",
        "inf",
        "-inf",
        "infinity",
        "1e5",
        "e5",
        "_",
        ".5",
        "1_000",
        "-0",
        "007",
        "0x1f",
        "nULL",
        "TRUE",
        "falsE",
        "0.50",
        "-0.0",
        "-12.5",
        "00.5",
        "1.",
        "1.5.2",
        "0.1e3",
        "9" * 18 + ".25",
    ]
)
URLS = st.from_regex(r"https?://[a-zA-Z0-9_.-]{1,8}(:[0-9]{1,5})?(/[A-Za-z0-9_./-]{0,8})?", fullmatch=True)


def by_hydra(raw: str) -> object:
    try:
        return PARSER.parse_override(f"+k={raw}").value()
    except HydraException:
        return raw


@settings(max_examples=400, deadline=None)
@given(
    WORDS
    | URLS
    | st.integers(-(10**20), 10**20).map(str)
    | st.from_regex(r"-?[0-9]{0,3}\.[0-9]{0,20}", fullmatch=True)
)
def test_plain_values_are_what_the_parser_makes_of_them(raw: str) -> None:
    ours, theirs = grammar.value("++k", "k", raw), by_hydra(raw)
    assert (type(ours), repr(ours)) == (type(theirs), repr(theirs))


@pytest.mark.parametrize(
    "raw", ["gpt-4o", "http://127.0.0.1:8000/v1", "results/run.jsonl", "17", "-3", "0", "0.5", "true", "null"]
)
def test_most_values_need_no_parser(raw: str) -> None:
    script = (
        "import sys; from gymctl.config.reading import grammar; "
        f"grammar.value('++k', 'k', {raw!r}); sys.exit('hydra' in sys.modules or 'omegaconf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
