"""A configuration of several MiB starts as containers."""

from __future__ import annotations

from typing import Any

from fakes import large


def test_a_block_larger_than_an_environment_variable_arrives_whole(folder: Any) -> None:
    large.whole_blocks_arrive(folder)
