"""What a list of free tokens means."""

from __future__ import annotations

import pytest

from gymctl.cli.selection import selection, sort_tokens
from gymctl.errors import UsageError


def test_tokens_are_overrides_files_or_benchmarks() -> None:
    tokens = ["arithmetic", "a/b.yaml", "+x=1", "++y.z=2", "~a", "k=v", "gsm8k/hard", "c.yml"]
    assert sort_tokens(tokens) == (
        ["+x=1", "++y.z=2", "~a", "k=v"],
        ["a/b.yaml", "c.yml"],
        ["arithmetic", "gsm8k/hard"],
    )


def test_flags_come_before_tokens() -> None:
    chosen = selection(["b.yaml", "two"], config=["a.yaml"], benchmark=["one"], model_url="http://h")
    assert chosen.config == ("a.yaml", "b.yaml")
    assert chosen.benchmark == ("one", "two")
    assert chosen.model_url == "http://h"


def test_the_api_key_is_not_shown() -> None:
    assert "sk-1234567" not in repr(selection([], model_api_key="sk-1234567"))


def test_an_empty_token_is_an_error() -> None:
    with pytest.raises(UsageError):
        sort_tokens([""])
