"""What stays of a project's secrets when it has ended: nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.secrets import HIDDEN, is_in

from gymctl.errors import EngineError
from gymctl.paths import ProjectPaths
from gymctl.runtime import at_rest, private, state


@pytest.fixture
def paths(tmp_path: Path) -> ProjectPaths:
    """A project with a key of every hard kind in a part, in a log, and in a log as JSON."""
    made = ProjectPaths.of("a", tmp_path)
    private.make_folder(made.parts)
    made.logs.mkdir()
    private.write(made.part("teller"), json.dumps({"settings": HIDDEN}))
    private.write_secret(made.secret, bytes(32))
    made.compose.write_text("name: a\n")
    (made.logs / "teller.log").write_bytes("".join(f"{key} told\n" for key in HIDDEN.values()).encode())
    (made.logs / "json.log").write_text("".join(f"{json.dumps(key)} told\n" for key in HIDDEN.values()))
    (made.logs / "empty.log").touch()
    return made


def test_parts_and_key_go_and_a_log_stays_without_them(paths: ProjectPaths) -> None:
    sizes = {log.name: log.stat().st_size for log in paths.logs.iterdir()}
    at_rest.clear(paths)
    at_rest.clear(paths)
    left = [path for path in paths.folder.rglob("*") if path.is_file()]
    assert {path.name for path in left} == {"compose.yaml", *sizes}
    assert [(path, found) for path in left if (found := is_in(path.read_bytes()))] == []
    assert {log.name: log.stat().st_size for log in paths.logs.iterdir()} == sizes
    for name in ("teller.log", "json.log"):
        assert (paths.logs / name).read_bytes().count(b" told\n") == len(HIDDEN)


def test_keys_that_overlap_go_whole(paths: ProjectPaths) -> None:
    private.write(paths.part("teller"), json.dumps({"a_key": "abcdefgh", "b_key": "efghijkl", "c": "public"}))
    (paths.logs / "teller.log").write_text("<abcdefghijkl> public\n")
    at_rest.clear(paths)
    assert (paths.logs / "teller.log").read_text() == f"<{'*' * 12}> public\n"


def test_a_project_whose_secrets_cannot_go_is_not_forgotten(paths: ProjectPaths) -> None:
    paths.state.write_text("{}")
    paths.parts.rename(paths.folder / "elsewhere")
    paths.parts.symlink_to(paths.folder / "elsewhere")  # which nobody but a user makes
    with pytest.raises(EngineError, match="`a` is stopped, but its secrets cannot be removed") as caught:
        state.forget(paths)
    assert "gymctl down a" in str(caught.value.hint)
    assert paths.state.exists()
