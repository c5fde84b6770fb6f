"""The container half of gymctl as local processes get it."""

from __future__ import annotations

import marshal
import sys
from pathlib import Path

import pytest

from gymctl.runtime.envs import staged_sdk

TAG = sys.implementation.cache_tag
HEADER_BYTES = 16


def test_the_sdk_is_staged_once_and_compiled_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sdk = staged_sdk()
    assert staged_sdk() == sdk
    assert [path.name for path in sdk.parent.iterdir()] == [sdk.name]
    sources = list(sdk.rglob("*.py"))
    assert sdk / "gymctl" / "servers" / "__main__.py" in sources
    assert not (sdk / "gymctl" / "cli").exists()
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.{TAG}.pyc"
        code = marshal.loads(compiled.read_bytes()[HEADER_BYTES:])
        assert code.co_filename == str(source)
