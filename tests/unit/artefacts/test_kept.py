"""Unpacked benchmarks of a user: whole or not there, whoever brings them at once; nobody else's to change."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from gymctl.artefacts import content as contents
from gymctl.artefacts import kept
from gymctl.artefacts.content import Item
from gymctl.artefacts.pack import Artefact, pack
from gymctl.errors import IntegrityError, PrerequisiteError
from gymctl.images import scratch
from gymctl.images.lock import Lock

PLACE = "benchmarks/tool/config.yaml"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made() -> tuple[contents.Content, Artefact]:
    files = {PLACE: Item.made(b"tool: {}\n")}
    content = contents.content(name="tool", benchmark="tool", files=files, lock=Lock())
    return content, pack(content)


def write(content: contents.Content, folder: Path) -> None:
    for place, item in content.files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(item.data)


def keep() -> tuple[str, Path]:
    content, artefact = made()
    with kept.arriving(artefact.manifest) as new:
        write(content, new)
    digest = artefact.descriptor.digest
    return digest, kept.checked(digest)[0]


def names(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "gymctl" / "benchmarks").iterdir())


def test_who_comes_second_takes_what_the_first_brought(cache: Path) -> None:
    content, artefact = made()
    with kept.arriving(artefact.manifest) as late:
        digest, folder = keep()
        before = (folder / PLACE).stat().st_ino
        write(content, late)
    assert kept.checked(digest)[0] == folder
    assert (folder / PLACE).stat().st_ino == before, "another command may run from it already"
    assert names(cache) == [folder.name, f"{folder.name}.json"]


def test_many_at_once_all_find_it_whole(cache: Path) -> None:
    start, failed = threading.Barrier(8), list[Exception]()

    def bring() -> None:
        start.wait()
        try:
            for _ in range(10):
                keep()
        except Exception as error:  # noqa: BLE001 - told by the assertion
            failed.append(error)

    several = [threading.Thread(target=bring) for _ in range(8)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert failed == []
    assert len(names(cache)) == 2


@pytest.mark.parametrize("is_folder", [True, False])
def test_half_of_it_is_brought_again(cache: Path, *, is_folder: bool) -> None:
    digest, folder = keep()
    if is_folder:
        shutil.rmtree(folder)  # as the message about a damaged one says
    else:
        folder.with_name(f"{folder.name}.json").unlink()
    assert not kept.has(digest)
    assert keep() == (digest, folder)
    assert len(names(cache)) == 2


def test_refused_one_leaves_nothing_and_what_a_killed_command_left_goes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, artefact = made()
    killed = cache / "gymctl" / "benchmarks" / ".new-killed"
    (killed / "files").mkdir(parents=True)
    monkeypatch.setattr(scratch, "SURELY_LOCKED_SECONDS", 0.0)
    with pytest.raises(IntegrityError), kept.arriving(artefact.manifest) as new:
        new.mkdir()
        raise IntegrityError("refused")
    assert names(cache) == []


@pytest.mark.parametrize("mode", [0o777, 0o707])
@pytest.mark.parametrize("place", ["gymctl/benchmarks", "gymctl", "."])
def test_folder_that_others_may_write_to_is_not_used(cache: Path, mode: int, place: str) -> None:
    digest, _ = keep()
    (cache / place).chmod(mode)
    with pytest.raises(PrerequisiteError, match="other users could change") as refused:
        kept.checked(digest)
    assert refused.value.where == str((cache / place).resolve())
    with pytest.raises(PrerequisiteError), kept.arriving(made()[1].manifest):
        pytest.fail("nothing is brought there")
    (cache / place).chmod(0o1777)
    kept.checked(digest)
