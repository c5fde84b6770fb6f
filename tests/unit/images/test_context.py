"""What is in a build context, and that its digest means its content."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.errors import ConfigError
from gymctl.images.context import base_context, sdk_context, server_context, stage_sdk

NAMES = st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6})?\.(py|txt)", fullmatch=True)
TREES = st.dictionaries(NAMES, st.binary(max_size=40), min_size=1, max_size=6)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def digest(files: dict[str, bytes]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return server_context(write(Path(folder), files)).digest()


@settings(max_examples=30, deadline=None)
@given(files=TREES, data=st.data())
def test_any_byte_of_any_file_changes_the_digest(files: dict[str, bytes], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name] or b"\0")
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    assert digest({**files, name: bytes(content)}) != digest(files)


@settings(max_examples=30, deadline=None)
@given(files=TREES, data=st.data())
def test_order_of_creation_and_file_times_do_not_change_the_digest(
    files: dict[str, bytes], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(sorted(files)))
    with tempfile.TemporaryDirectory() as folder:
        root = write(Path(folder), {name: files[name] for name in order})
        for name in files:
            os.utime(root / name, (1, data.draw(st.integers(0, 2**31))))
        assert server_context(root).digest() == digest(files)


def test_a_renamed_or_executable_file_changes_the_digest(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": b"x"})
    first = server_context(tmp_path).digest()
    (tmp_path / "a.py").chmod(0o755)
    second = server_context(tmp_path).digest()
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, server_context(tmp_path).digest()}) == 3


def test_tests_caches_and_files_with_keys_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"app.py": b"x", "data/example.jsonl": b"{}", "pkg/tests/kept.txt": b"nested"})
    kept = set(server_context(tmp_path).files)
    for name in (
        "tests/test_app.py",
        "__pycache__/app.cpython-311.pyc",
        "pkg/__pycache__/x.pyc",
        "data/cache/big.bin",
        "data/train.jsonl.partial",
        ".venv/lib/x.py",
        ".env",
        "env.yaml",
        "pkg/.mypy_cache/x",
    ):
        write(tmp_path, {name: b"secret"})
    assert (
        set(server_context(tmp_path).files) == kept == {"app.py", "data/example.jsonl", "pkg/tests/kept.txt"}
    )


def test_a_copy_is_readable_by_any_user_and_has_the_same_digest(tmp_path: Path) -> None:
    write(tmp_path / "from", {"app.py": b"x", "deep/er/run.sh": b"#!/bin/sh"})
    (tmp_path / "from/app.py").chmod(0o600)
    (tmp_path / "from/deep").chmod(0o700)
    (tmp_path / "from/deep/er/run.sh").chmod(0o700)
    context = server_context(tmp_path / "from")
    context.copy_to(tmp_path / "to")
    modes = {
        p.relative_to(tmp_path / "to").as_posix(): p.stat().st_mode & 0o777
        for p in (tmp_path / "to").rglob("*")
    }
    assert modes == {"app.py": 0o644, "deep": 0o755, "deep/er": 0o755, "deep/er/run.sh": 0o755}
    assert server_context(tmp_path / "to").digest() == context.digest()


def test_links_are_followed_and_a_link_to_a_folder_above_ends(tmp_path: Path) -> None:
    write(tmp_path / "shared", {"prompt.txt": b"hello"})
    server = write(tmp_path / "server", {"app.py": b"x"})
    (server / "prompts").symlink_to(tmp_path / "shared")
    (server / "again").symlink_to(server)
    (server / "broken").symlink_to(tmp_path / "nothing")
    assert set(server_context(server).files) == {"app.py", "prompts/prompt.txt"}


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such server folder"):
        server_context(tmp_path / "nowhere")


def test_the_sdk_holds_the_container_half_only(tmp_path: Path) -> None:
    stage_sdk(tmp_path)
    top = {path.name for path in (tmp_path / "gymctl").iterdir()}
    assert {"__init__.py", "errors.py", "paths.py", "contract", "metrics", "servers"} <= top
    assert not top & {"cli", "config", "compose", "images", "runtime", "rollouts", "engine.py", "__pycache__"}
    assert not (tmp_path / "gymctl/metrics/exporters").exists()
    assert "gymctl/contract/part.py" in sdk_context().files


def test_the_base_context_holds_what_the_dockerfile_copies() -> None:
    assert {"base.lock", "uv.lock", "with_network.sh", "gymctl/__init__.py"} <= set(base_context().files)


def test_a_readme_changes_no_image_unless_the_build_reads_it(tmp_path: Path) -> None:
    """B50."""
    write(tmp_path, {"app.py": b"x", "README.md": b"one", "pkg/README.md": b"data"})
    first = server_context(tmp_path)
    assert set(first.files) == {"app.py", "pkg/README.md"}
    write(tmp_path, {"README.md": b"two"})
    assert server_context(tmp_path).digest() == first.digest()
    for name, text in (("pyproject.toml", b'readme = "README.md"'), ("Dockerfile", b"COPY README.md /x")):
        folder = write(tmp_path / name, {"app.py": b"x", "README.md": b"one", name: text})
        assert "README.md" in server_context(folder).files


def test_the_size_of_a_context_is_that_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, {"app.py": b"12345", "data/x.jsonl": b"123", ".env": b"not counted"})
    assert server_context(tmp_path).size == 8
