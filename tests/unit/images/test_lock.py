"""The lock file: the same images give the same bytes, a broken file is refused by what is wrong in it."""

from __future__ import annotations

import itertools
import json
import resource
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.errors import IntegrityError, PrerequisiteError, UsageError
from gymctl.images.lock import Lock, LockedImage, changing, check_place, read, write
from gymctl.images.locking import update

NAMES = st.sampled_from(["Dockerfile.base", "resources_servers/weather", "responses_api_agents/simple_agent"])


@st.composite
def images(draw: st.DrawFn) -> LockedImage:
    name = draw(NAMES)
    return LockedImage(
        name=name,
        repository=f"gymctl/{name.lower().replace('/', '-').replace('_', '-')}",
        tag=draw(st.text("0123456789abcdef", min_size=20, max_size=20)),
        id=f"sha256:{draw(st.integers(0, 2**256 - 1)):064x}",
        digest=draw(st.none() | st.integers(0, 2**256 - 1).map(lambda number: f"sha256:{number:064x}")),
        platform=draw(st.sampled_from(["linux/amd64", "linux/arm64"])),
        inputs="0" * 64,
        base="python:3.13-slim",
    )


@given(st.lists(images(), max_size=4, unique_by=lambda one: (one.name, one.platform)))
def test_the_order_of_building_changes_no_byte(found: list[LockedImage]) -> None:
    texts = {Lock().with_images(order).text() for order in itertools.permutations(found)}
    assert len(texts) == 1


@given(st.lists(images(), min_size=1))
def test_a_later_image_takes_the_place_of_the_same_name_and_platform(found: list[LockedImage]) -> None:
    lock = Lock().with_images(found)
    last = found[-1]
    assert lock.find(last.name, last.platform) == last
    keys = [(one.name, one.platform) for one in lock.images]
    assert keys == sorted(set(keys))


@given(st.lists(images(), max_size=3))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, found: list[LockedImage]) -> None:
    path = tmp_path_factory.mktemp("lock") / "images.lock.json"
    lock = Lock(gymctl="1.2.3").with_images(found)
    write(path, lock)
    assert read(path) == lock
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no lock file") as caught:
        read(tmp_path / "images.lock.json")
    assert caught.value.where == str(tmp_path / "images.lock.json")
    assert caught.value.hint == "`gymctl build` writes one; `--locked --lock FILE` takes another"
    write(tmp_path / "weather.lock.json", Lock())
    for missing, hint in (
        ("wether.lock.json", "did you mean `weather.lock.json`?"),
        ("x", "there: weather."),
    ):
        with pytest.raises(UsageError) as caught:
            read(tmp_path / missing)
        assert str(caught.value.hint).startswith(hint)


def test_a_file_that_cannot_be_read_is_no_broken_one(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="the lock file cannot be read: Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "the file: Invalid JSON"),
        ('{"images": [{"name": "a"}]}', r"images\.0\.repository: Field required"),
        ('{"schema_version": 99, "gymctl": "9.9"}', r"newer gymctl \(9\.9\)"),
        ('{"schema_version": 99, "gymctl": "9.9", "images": {"a": 1}}', r"newer gymctl \(9\.9\)"),
        ("\ufeff{}", "the file: Invalid JSON"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "images.lock.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match=what):
        read(path)


def test_only_what_was_pushed_can_be_pulled() -> None:
    digest = f"sha256:{'2' * 64}"
    image = LockedImage(
        name="a/b", repository="h:1/p/b", tag="t", id=digest, platform="linux/amd64", inputs="0", base="x"
    )
    assert image.pinned is None
    assert image.model_copy(update={"digest": digest}).pinned == f"h:1/p/b@{digest}"


def one_of(context: str, digit: str, **more: str | None) -> LockedImage:
    return LockedImage(
        name="resources_servers/weather",
        repository="gymctl/resources-weather",
        tag=digit * 20,
        id=f"sha256:{digit * 64}",
        platform="linux/amd64",
        inputs=digit * 64,
        context=context,
        base="Dockerfile.base",
    ).model_copy(update=more)


def test_two_folders_of_one_name_are_told_apart_by_what_is_in_them() -> None:
    both = Lock().with_images([one_of("a", "1"), one_of("b", "2")])
    found = [both.find("resources_servers/weather", "linux/amd64", context) for context in ("a", "b")]
    assert [one and one.id[-1] for one in found] == ["1", "2"]
    assert both.find("resources_servers/weather", "linux/amd64", "c") in both.images
    assert both.find("resources_servers/weather", "linux/arm64", "a") is None


def test_a_lock_that_tells_where_a_checkout_lay_is_read_without_the_path(tmp_path: Path) -> None:
    path = tmp_path / "images.lock.json"
    old = [
        one_of("a", "1").model_dump() | {"name": "nemo-gym at /home/jane/gym"},
        one_of("b", "2").model_dump() | {"base": "nemo-gym at /home/jane/gym"},
    ]
    path.write_text(json.dumps({"schema_version": 1, "images": old}))
    lock = read(path)
    found = lock.find("nemo-gym checkout", "linux/amd64", "a")
    assert found is not None
    assert found.id == old[0]["id"]
    assert lock.images[1].base == "nemo-gym checkout"
    assert "jane" not in lock.text()


def test_an_edited_folder_leaves_no_old_image_in_the_lock() -> None:
    first = Lock().with_images([one_of("a", "1")])
    assert first.with_images([one_of("b", "2")]).images == (one_of("b", "2"),)


def test_the_same_image_looked_at_again_keeps_its_place_in_a_registry() -> None:
    pushed = one_of("a", "1", repository="h.example/p/weather", digest=f"sha256:{'5' * 64}")
    assert Lock().with_images([pushed]).with_images([one_of("a", "1")]).images == (pushed,)
    assert Lock().with_images([pushed]).with_images([one_of("a", "2")]).images == (one_of("a", "2"),)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "sha256:1"),
        ("id", "latest"),
        ("digest", "sha256:zz"),
        ("repository", "--privileged"),
        ("repository", "a b"),
        ("platform", "--help"),
    ],
)
def test_what_is_no_name_of_an_image_never_reaches_the_engine(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "images.lock.json"
    image = one_of("a", "1").model_dump() | {key: value}
    path.write_text(json.dumps({"schema_version": 1, "images": [image]}))
    with pytest.raises(IntegrityError, match=f"the lock file is broken: images.0.{key}"):
        read(path)


def one(number: int) -> LockedImage:
    return LockedImage(
        name=f"resources_servers/server{number}",
        repository=f"gymctl/resources-server{number}",
        tag="0" * 20,
        id=f"sha256:{number:064x}",
        platform="linux/amd64",
        inputs="0" * 64,
        base="Dockerfile.base",
    )


def test_commands_that_change_one_lock_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    file = tmp_path / "images.lock.json"
    other = threading.Thread(target=update, args=(file, Lock(images=(one(2),))))
    with changing(file) as before:
        other.start()
        other.join(0.3)
        assert other.is_alive()
        write(file, before.with_images([one(1)]))
    other.join()
    assert {image.id for image in read(file).images} == {one(1).id, one(2).id}
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_lock_that_is_no_lock_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "images.lock.json"
    file.write_text("{")
    with pytest.raises(IntegrityError, match="broken"):
        update(file, Lock(images=(one(1),)))
    assert file.read_text() == "{"


def test_half_a_file_of_a_command_that_was_killed_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".images.lock.json.new").write_text('{"images": [')
    update(tmp_path / "images.lock.json", Lock(images=(one(1),)))
    assert [path.name for path in tmp_path.iterdir()] == ["images.lock.json"]


def test_full_disk_leaves_the_old_lock_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "images.lock.json"
    update(file, Lock(images=(one(1),)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    was = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(PrerequisiteError, match="cannot be written") as refused:
            update(file, Lock(images=(one(2),)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, was)
    assert refused.value.where == str(file)
    assert [image.id for image in read(file).images] == [one(1).id]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_place_that_cannot_hold_a_lock_is_told_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="not there"):
        check_place(tmp_path / "no" / "images.lock.json")
    with pytest.raises(UsageError, match="folder"):
        check_place(tmp_path)
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        update(tmp_path / "no" / "images.lock.json", Lock())
    file = tmp_path / "images.lock.json"
    check_place(file)
    file.write_text("<<<<<<< ours")
    with pytest.raises(IntegrityError, match="broken") as broken:
        check_place(file)
    assert "remove it" in str(broken.value.hint)


def test_lock_that_has_one_image_for_two_servers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "images.lock.json"
    other = one(2).model_copy(update={"id": one(1).id, "inputs": "1" * 64})
    write(file, Lock(images=(one(1), other)))
    with pytest.raises(
        IntegrityError, match="for resources_servers/server1 and for resources_servers/server2"
    ):
        read(file)


def test_lock_that_has_two_images_for_one_server_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "images.lock.json"
    other = one(2).model_copy(update={"name": one(1).name, "inputs": "1" * 64})
    write(file, Lock(images=(one(1), other)))
    with pytest.raises(IntegrityError, match=r"two images, 0+ and 0+, for resources_servers/server1 \(linux"):
        read(file)
    write(file, Lock(images=(one(1), one(1), other.model_copy(update={"context": "b"}))))
    assert len(read(file).images) == 3, "the same twice, and another folder of that name, say nothing wrong"
