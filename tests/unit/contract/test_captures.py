"""Names of capture files and digests of tokens (CONTRACT 15.1, 15.3)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.captures import CaptureFiles, digest


@given(st.lists(st.integers(min_value=0, max_value=2**64 - 1), min_size=1, max_size=20))
def test_15_3_a_digest_is_over_version_count_and_ids_big_endian(ids) -> None:
    raw = b"nemo-gym-tokens" + b"\x01" + len(ids).to_bytes(8, "big")
    raw += b"".join(each.to_bytes(8, "big") for each in ids)
    assert digest(ids) == hashlib.sha256(raw).hexdigest()


def test_15_3_no_tokens_are_the_prefix_alone() -> None:
    assert digest([]) == hashlib.sha256(b"nemo-gym-tokens").hexdigest()


@pytest.mark.parametrize("rollout", ["", "a/b", "a b", "ä", "x" * 201])
def test_an_id_that_cannot_be_a_files_name_has_no_files(rollout) -> None:
    assert CaptureFiles.of(Path("/data"), rollout) is None


def test_files_are_named_after_the_rollout() -> None:
    files = CaptureFiles.of(Path("/data"), "3-0-a1")
    assert files is not None
    assert [path.name for path in files.all] == [
        *("3-0-a1.capture.jsonl", "3-0-a1.capture.incomplete"),
        *("3-0-a1.tokens.jsonl", "3-0-a1.tokens.state.json", "3-0-a1.tokens.lock"),
    ]
