"""A bundle: the same bytes every time, and one that is not as it was packed is refused by what differs."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from fakes import bundles
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.artefacts import content as contents
from gymctl.artefacts import layout, plain_tar
from gymctl.artefacts.bundle import bundle
from gymctl.artefacts.opened import open_bundle
from gymctl.artefacts.pack import FILES_TYPE, pack
from gymctl.artefacts.unbundle import keep, lock_for, unpack, unpack_to
from gymctl.engine import Engine
from gymctl.errors import IntegrityError, PrerequisiteError, UsageError
from gymctl.images.lock import Lock, read


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return bundles.make(tmp_path_factory.mktemp("bundle")).read_bytes()


def entries(data: bytes) -> dict[str, plain_tar.Entry]:
    return {entry.name: entry for entry in plain_tar.scan(io.BytesIO(data), "test")}


def blob(data: bytes) -> str:
    return layout.BLOBS + hashlib.sha256(data).hexdigest()


def flipped(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


def opened(folder: Path, data: bytes) -> None:
    path = folder / "weather.gymb"
    path.write_bytes(data)
    open_bundle(path)


def refused(folder: Path, data: bytes) -> str:
    with pytest.raises(IntegrityError) as caught:
        opened(folder, data)
    assert caught.value.exit_code == 9
    assert caught.value.where == str(folder / "weather.gymb")
    return str(caught.value)


def rebuilt(data: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """With other files and SHA256SUMS that lists them: what somebody would make who knows the form."""
    files = {name: data[one.offset : one.offset + one.size] for name, one in entries(data).items()}
    change(files)
    files[layout.SUMS] = layout.sums(
        (name, hashlib.sha256(text).hexdigest()) for name, text in files.items() if name != layout.SUMS
    )
    out = io.BytesIO()
    for name, text in sorted(files.items()):
        plain_tar.write(out, name, len(text), [text])
    plain_tar.end(out)
    return out.getvalue()


def small_files() -> str:
    """The blob with the benchmark's small files; in its middle is padding."""
    (tar,) = (blob for blob, _ in pack(bundles.benchmark()).blobs if blob.media_type == FILES_TYPE)
    return layout.BLOBS + tar.digest.removeprefix("sha256:")


def test_twice_the_same_bytes(tmp_path: Path, whole: bytes) -> None:
    assert bundles.make(tmp_path).read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("new", "."))] == []


def test_every_blob_is_there_once_whoever_shares_it(whole: bytes) -> None:
    names = [name for name in entries(whole) if name == blob(bundles.LAYERS[0])]
    assert len(names) == 1
    assert whole.count(bundles.LAYERS[0]) == 1


def test_any_tar_reads_it_and_sums_say_what_is_in_it(whole: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        members = archive.getmembers()
        found = {
            member.name: hashlib.sha256(archive.extractfile(member).read()).hexdigest()  # type: ignore[union-attr]
            for member in members
        }
    assert [member.name for member in members] == sorted(found)
    assert {(one.mtime, one.uid, one.gid, one.uname) for one in members} == {(0, 0, 0, "")}
    sums = whole[entries(whole)[layout.SUMS].offset :][: entries(whole)[layout.SUMS].size].decode()
    assert dict(reversed(line.split("  ")) for line in sums.splitlines()) == {
        name: digest for name, digest in found.items() if name != layout.SUMS
    }


def test_what_is_packed_comes_out(tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "weather.gymb"
    path.write_bytes(whole)
    found = open_bundle(path)
    assert (found.manifest.name, found.lock) == ("weather", bundles.lock())
    assert found.digest == pack(bundles.benchmark()).descriptor.digest, "the artefact that push sends"
    folder = keep(found)
    expected = {place: b"".join(item.chunks()) for place, item in bundles.benchmark().files.items()}
    assert {place: (folder / place).read_bytes() for place in expected} == expected
    assert keep(found) == folder
    other = tmp_path / "other"
    unpack(found, other)
    assert {place: (other / place).read_bytes() for place in expected} == expected
    assert sorted(one.name for one in tmp_path.iterdir()) == ["cache", "other", "weather.gymb"]
    (folder / bundles.APP).chmod(0o644)
    (folder / bundles.APP).write_text("print('other')")
    with pytest.raises(IntegrityError, match=r"weather/app\.py is not what it was"):
        keep(found)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (blob(bundles.LAYERS[0]), "layer 1 of Dockerfile.base is damaged"),
        (blob(bundles.LAYERS[1]), "layer 2 of resources_servers/weather is damaged"),
        (
            blob(bundles.config_of(bundles.LAYERS)),
            "the configuration of resources_servers/weather is damaged",
        ),
        (blob(b'{"id": 1}\n'), f"{bundles.ROWS} is damaged"),
        (blob(json.dumps({"bom": "Dockerfile.base"}).encode()), "Dockerfile.base.cdx.json is damaged"),
        (f"{layout.BLOBS}{bundles.benchmark().digest}", "benchmark.json is damaged"),
        (blob(bundles.lock().text().encode()), "images.lock.json is damaged"),
        (small_files(), "files.tar of the benchmark is damaged"),
        *((name, f"{name} is damaged") for name in layout.OTHERS),
    ],
)
def test_one_flipped_byte_is_refused_by_name(tmp_path: Path, whole: bytes, name: str, says: str) -> None:
    entry = entries(whole)[name]
    assert says in refused(tmp_path, flipped(whole, entry.offset + entry.size // 2))


def test_a_damaged_small_file_is_named(tmp_path: Path, whole: bytes) -> None:
    said = refused(tmp_path, flipped(whole, whole.index(b"print('weather')")))
    assert f"{bundles.APP} is damaged" in said


def test_several_damages_are_all_named(tmp_path: Path, whole: bytes) -> None:
    found = entries(whole)
    changed = whole
    for name in (layout.INDEX, "load.sh", blob(bundles.LAYERS[0])):
        changed = flipped(changed, found[name].offset)
    said = refused(tmp_path, changed)
    assert "3 parts of the bundle are damaged" in said
    assert "load.sh is damaged" in said


def test_a_damaged_manifest_is_named(tmp_path: Path, whole: bytes) -> None:
    found = entries(whole)
    index = json.loads(whole[found[layout.INDEX].offset :][: found[layout.INDEX].size])
    for listed, says in zip(index["manifests"], _MANIFESTS, strict=True):
        entry = found[layout.BLOBS + listed["digest"].removeprefix("sha256:")]
        assert f"the manifest of {says} is damaged" in refused(tmp_path, flipped(whole, entry.offset + 9))


_MANIFESTS = ("Dockerfile.base", "an SBOM", "resources_servers/weather", "an SBOM", "the benchmark")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_flipped_bit_passes(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    changed = whole[:offset] + bytes([whole[offset] ^ (1 << bit)]) + whole[offset + 1 :]
    refused(tmp_path_factory.mktemp("flipped"), changed)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_a_part_of_the_file_is_refused(tmp_path: Path, whole: bytes, share: float) -> None:
    said = refused(tmp_path, whole[: int((len(whole) - 1) * share)])
    assert "ends" in said


@pytest.mark.parametrize("more", [b"\0", b"x", bytes(512), b"more" * 300])
def test_bytes_after_the_end_are_refused(tmp_path: Path, whole: bytes, more: bytes) -> None:
    assert "the file has bytes after its end" in refused(tmp_path, whole + more)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../escape", "blobs/sha256/../../x", "blobs/sha256/abc", "x"]
)
def test_a_file_that_is_no_part_of_a_bundle_is_refused(tmp_path: Path, whole: bytes, name: str) -> None:
    def add(files: dict[str, bytes]) -> None:
        files[name] = b"?"

    assert f"{name!r} is no part of a bundle" in refused(tmp_path, rebuilt(whole, add))


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE],
)
def test_what_is_no_file_is_refused(tmp_path: Path, whole: bytes, kind: bytes) -> None:
    info = tarfile.TarInfo("AAA")
    info.type, info.linkname, info.mode = kind, "/etc/passwd", 0o644
    assert "AAA is no file" in refused(tmp_path, info.tobuf(tarfile.GNU_FORMAT) + whole)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x1f\x8b\x08", "gunzip"),
        (b"\x28\xb5\x2f\xfd", "unzstd"),
        (b"\xfd7zXZ\x00", "unxz"),
        (b"root:x:0:0\n" * 90, "this is no bundle"),
    ],
)
def test_another_kind_of_file_is_told(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "b.gymb").write_bytes(data)
    with pytest.raises(IntegrityError) as refused:
        open_bundle(tmp_path / "b.gymb")
    assert says in str(refused.value)


async def test_bundle_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    content = contents.content(name="a", benchmark="a", files={}, lock=Lock())
    engine: Any = None  # nothing is asked of it before there is a place
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        await bundle(content, Lock(), engine, tmp_path / "no" / "b.gymb", engine)


@pytest.mark.parametrize("size", [-1, -512, -(1 << 40)])
def test_a_size_below_nothing_is_refused(size: int) -> None:
    head = plain_tar.header("a", size)
    with pytest.raises(IntegrityError, match="broken"):
        list(plain_tar.scan(io.BytesIO(head + bytes(4096)), "test"))


def test_unpacked_folder_is_whole_or_not_there(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "b.gymb").write_bytes(whole)
    found = open_bundle(tmp_path / "b.gymb")
    (tmp_path / "b.gymb").write_bytes(whole[: found.small.offset])  # it goes away while it is read
    with pytest.raises(IntegrityError, match="changed while"):
        unpack_to(found, tmp_path / "new" / "place")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "b.gymb").write_bytes(whole)
    unpack_to(found, tmp_path / "new" / "place")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["place"]


def test_names_out_of_order_are_refused(tmp_path: Path, whole: bytes) -> None:
    out = io.BytesIO()
    plain_tar.write(out, "oci-layout", 1, [b"x"])
    assert "README.md is not in its place" in refused(tmp_path, out.getvalue() + whole)


def _another_lock(files: dict[str, bytes]) -> None:
    """An image in place of the locked one, with everything else as it should be."""
    index = json.loads(files[layout.INDEX])
    index["manifests"] = index["manifests"][2:]
    files[layout.INDEX] = json.dumps(index).encode()
    docker = json.loads(files[layout.DOCKER])
    files[layout.DOCKER] = json.dumps(docker[1:]).encode()
    _drop_strays(files, index)


def _drop_strays(files: dict[str, bytes], index: dict[str, list[dict[str, str]]]) -> None:
    kept: set[str] = set()
    for listed in index["manifests"]:
        name = layout.BLOBS + listed["digest"].removeprefix("sha256:")
        manifest = json.loads(files[name])
        held = [manifest["config"], *manifest["layers"]]
        kept |= {name, *(layout.BLOBS + one["digest"].removeprefix("sha256:") for one in held)}
    for name in [name for name in files if name.startswith(layout.BLOBS) and name not in kept]:
        del files[name]


def _other_docker_image(files: dict[str, bytes]) -> None:
    docker = json.loads(files[layout.DOCKER])
    docker[1]["Layers"].reverse()
    files[layout.DOCKER] = json.dumps(docker).encode()


def _name_of_a_build(files: dict[str, bytes]) -> None:
    """An image that would take the place of one that was built here."""
    docker = json.loads(files[layout.DOCKER])
    docker[0]["RepoTags"] = ["gymctl/base:0123456789"]
    files[layout.DOCKER] = json.dumps(docker).encode()


def _name_of_a_build_for_containerd(files: dict[str, bytes]) -> None:
    index = json.loads(files[layout.INDEX])
    index["manifests"][0]["annotations"][layout.CONTAINERD] = "docker.io/library/python:3.13-slim"
    files[layout.INDEX] = json.dumps(index).encode()


def _name_of_an_artefact(files: dict[str, bytes]) -> None:
    index = json.loads(files[layout.INDEX])
    index["manifests"][-1]["annotations"] = {layout.CONTAINERD: "docker.io/library/python:3.13-slim"}
    files[layout.INDEX] = json.dumps(index).encode()


def _stray(files: dict[str, bytes]) -> None:
    files[blob(b"stray")] = b"stray"


def _no_index(files: dict[str, bytes]) -> None:
    files[layout.INDEX] = b"[]"


def _gone(files: dict[str, bytes]) -> None:
    del files["oci-layout"]


def _missing_layer(files: dict[str, bytes]) -> None:
    del files[blob(bundles.LAYERS[1])]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_another_lock, "the image of Dockerfile.base is not the one in images.lock.json"),
        (_other_docker_image, "manifest.json names other images than index.json"),
        (_name_of_a_build, "a name that is not its own: docker.io/gymctl"),
        (_name_of_a_build_for_containerd, "a name that is not its own: docker.io/library/python"),
        (_name_of_an_artefact, "index.json gives a name to what is no image"),
        (_stray, "belongs to nothing in index.json"),
        (_no_index, "index.json"),
        (_gone, "oci-layout is missing"),
        (_missing_layer, "is missing or has another size"),
    ],
)
def test_a_bundle_that_does_not_agree_with_itself_is_refused(
    tmp_path: Path, whole: bytes, change: Callable[[dict[str, bytes]], None], says: str
) -> None:
    assert says in refused(tmp_path, rebuilt(whole, change))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such bundle") as caught:
        open_bundle(tmp_path / "wether.gymb")
    assert caught.value.hint == "`gymctl bundle NAME` writes one"
    (tmp_path / "weather.gymb").touch()
    with pytest.raises(UsageError) as caught:
        open_bundle(tmp_path / "wether.gymb")
    assert caught.value.hint == "did you mean `weather.gymb`?"
    with pytest.raises(PrerequisiteError, match="the bundle cannot be read: Is a directory"):
        open_bundle(tmp_path)


class Held:
    """An engine that calls its images by these names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)

    def image_id(self, name: str) -> str | None:
        return name if name in self._names else None


def test_an_engine_that_calls_images_by_their_manifests_gets_a_lock_that_names_those(
    tmp_path: Path, whole: bytes
) -> None:
    path = tmp_path / "weather.gymb"
    path.write_bytes(whole)
    found = open_bundle(path)
    folder = tmp_path / "benchmark"
    by_config = cast(Engine, Held(found.manifests))
    assert asyncio.run(lock_for(found, by_config, folder)) == folder / "images.lock.json"
    by_manifest = cast(Engine, Held(found.manifests.values()))
    file = asyncio.run(lock_for(found, by_manifest, folder))
    assert file == tmp_path / "benchmark.lock.json"
    assert {image.id: image.digest for image in read(file).images} == found.manifests
