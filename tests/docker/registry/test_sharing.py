"""push, run by digest on a machine that has nothing, verify: and what was altered on the way is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.own_images import built_on, own_python, remove
from fakes.own_registry import LocalRegistry
from fakes.program import gymctl, read_lines

from gymctl.artefacts.descriptor import Descriptor, digest_of
from gymctl.engine import Engine
from gymctl.images.lock import Lock, LockedImage, read, write

WEATHER = "resources_servers/weather"
PLATFORM = "linux/amd64"


@dataclass(frozen=True)
class Shared:
    """The weather benchmark, pushed once for all tests here."""

    registry: LocalRegistry
    engine: Engine
    python: str
    folder: Path
    told: Mapping[str, Any]
    """What `push --json` said."""
    cache: Path

    @property
    def lock(self) -> Lock:
        return read(self.folder / "images.lock.json")

    @property
    def reference(self) -> str:
        return f"{self.registry.host}/bench/weather:latest"

    def image(self, name: str) -> LockedImage:
        return next(image for image in self.lock.images if image.name == name)

    def forget(self, *names: str) -> None:
        """Remove local images, by name or all."""
        remove(self.engine, [one.id for one in reversed(self.lock.images) if not names or one.name in names])

    def manifest(self, image: LockedImage) -> dict[str, Any]:
        path = image.repository.partition("/")[2]
        url = f"http://{self.registry.host}/v2/{path}/manifests/{image.digest}"
        accept = {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=accept)) as answer:
            return json.loads(answer.read())

    def run(self, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """As on another machine: without the benchmark's folder, base image or cache."""
        return gymctl(*arguments, cwd=folder, environ={"XDG_CACHE_HOME": str(self.cache)})


@pytest.fixture(scope="module")
def shared(registry: LocalRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder, engine = tmp_path_factory.mktemp("author"), Engine.connect()
    with own_python(engine) as python:
        environ = {"GYMCTL_BASE_IMAGE": python}
        try:
            pushed = gymctl(
                *("push", "weather", "--registry", f"{registry.host}/bench", "--json"),
                cwd=folder,
                environ=environ,
            )
            assert pushed.returncode == 0, pushed.stderr
            recorded = ("--model", "record:run.cassette", "-o", "local.jsonl")
            ran = gymctl("eval", "weather", *recorded, cwd=folder, environ=environ)
            assert ran.returncode == 0, ran.stderr
            cache = tmp_path_factory.mktemp("cache")
            yield Shared(registry, engine, python, folder, json.loads(pushed.stdout), cache)
        finally:
            lock = folder / "images.lock.json"
            if lock.is_file():
                remove(engine, [image.id for image in reversed(read(lock).images)])
            remove(engine, built_on(engine, python))


def rewards(file: Path) -> dict[tuple[int, int], float]:
    return {(one["_ng_task_index"], one["_ng_rollout_index"]): one["reward"] for one in read_lines(file)}


def test_skopeo_confirms_every_digest_that_the_lock_has(shared: Shared) -> None:
    assert shared.lock.images
    for image in shared.lock.images:
        command = ["skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}"]
        target = f"docker://{image.repository}:{image.tag}"
        said = subprocess.run([*command, target], check=True, capture_output=True, text=True)
        assert said.stdout.strip() == image.digest
        config = subprocess.run(
            ["skopeo", "inspect", "--tls-verify=false", "--raw", "--config", target],
            check=True,
            capture_output=True,
        )
        assert f"sha256:{hashlib.sha256(config.stdout).hexdigest()}" == image.id


def test_second_push_sends_nothing(shared: Shared) -> None:
    again = gymctl(
        *("push", "weather", "--registry", f"{shared.registry.host}/bench"),
        cwd=shared.folder,
        environ={"GYMCTL_BASE_IMAGE": shared.python},
    )
    assert again.returncode == 0, again.stderr
    rows = [line.split("  ") for line in again.stdout.splitlines()[1:]]
    assert len(rows) == len(shared.lock.images) + 1
    assert all("0 B" in [cell.strip() for cell in row] for row in rows), again.stdout
    assert shared.told["benchmark"]["digest"][:19] in again.stdout
    assert "read back: " in again.stderr


async def test_benchmark_runs_by_digest_where_nothing_of_it_is_and_a_tag_leads_astray(
    shared: Shared, tmp_path: Path
) -> None:
    weather = shared.image(WEATHER)
    path = weather.repository.partition("/")[2]
    shared.forget()
    assert not built_on(shared.engine, shared.python)
    other = shared.manifest(weather)
    other["layers"] = other["layers"][:-1]
    async with shared.registry.client() as client:
        right = await client.manifest(path, weather.digest or "")
        assert right is not None
        try:
            await client.put_manifest(path, weather.tag, json.dumps(other).encode(), right.media_type)
            found = shared.run(shared.folder, "verify", "images.lock.json")
            played = ("--model", f"replay:{shared.folder / 'run.cassette'}", "-o", "out.jsonl")
            done = shared.run(tmp_path, "eval", shared.reference, *played)
        finally:
            await client.put_manifest(path, weather.tag, right.data, right.media_type)
    assert found.returncode == 9
    assert f"{WEATHER} tag: differs" in found.stderr and (weather.digest or "")[:19] in found.stderr
    assert done.returncode == 0, done.stderr
    digest = shared.told["benchmark"]["digest"]
    assert f"{shared.reference}@{digest}" in done.stderr
    assert "locked by the benchmark" in done.stderr and "warning" not in done.stderr
    assert rewards(tmp_path / "out.jsonl") == rewards(shared.folder / "local.jsonl")
    passport = json.loads((tmp_path / "out" / "passport.json").read_text())
    assert passport["benchmark"] == {"reference": shared.reference, "digest": digest}
    ran = {image.name: image.id for image in read(tmp_path / "out" / "images.lock.json").images}
    assert ran and all(shared.image(name).id == id for name, id in ran.items())


def test_verify_finds_everything_as_it_was_pushed(shared: Shared) -> None:
    for what in ("images.lock.json", shared.reference):
        found = shared.run(shared.folder, "verify", what, "--json")
        assert found.returncode == 0, found.stderr
        findings = json.loads(found.stdout)["findings"]
        assert {one["status"] for one in findings} == {"ok"}
        names = {one["name"] for one in findings}
        assert {
            f"{WEATHER} manifest",
            f"{WEATHER} tag",
            f"{WEATHER} configuration",
            f"{WEATHER} SBOM",
        } <= names
    assert {"files", "rows of benchmarks/weather/data/weather.jsonl"} <= names


async def test_tampered_layer_is_refused_by_name(shared: Shared, tmp_path: Path) -> None:
    image = shared.image(WEATHER)
    path, manifest = image.repository.partition("/")[2], shared.manifest(image)
    # Packed anew, so under a digest that this engine does not know: its build cache has the layer, which it
    # would then not ask the registry for.
    layer = manifest["layers"][-1]
    content = gzip.compress(gzip.decompress(shared.registry.blob_file(layer["digest"]).read_bytes()), mtime=1)
    blob = Descriptor.of(layer["mediaType"], content)
    layers = [blob.json() if one == layer else one for one in manifest["layers"]]
    data = json.dumps({**manifest, "layers": layers}).encode()
    async with shared.registry.client() as client:
        await client.put_blob(path, blob, [content])
        await client.put_manifest(path, digest_of(data), data, manifest["mediaType"])
    lock = shared.lock.with_images([image.model_copy(update={"digest": digest_of(data)})])
    write(shared.folder / "other.lock.json", lock)
    shared.forget(WEATHER)
    file = shared.registry.blob_file(blob.digest)
    file.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    locked = ("--locked", "--lock", "other.lock.json")
    ran = shared.run(shared.folder, "eval", "weather", *locked, "-o", tmp_path / "out.jsonl")
    assert ran.returncode == 9, ran.stderr
    assert WEATHER in ran.stderr
    assert not (tmp_path / "out.jsonl").exists()
    found = shared.run(shared.folder, "verify", "other.lock.json", "--deep")
    assert found.returncode == 9
    assert f"{WEATHER} layer" in found.stderr and blob.digest[:19] in found.stderr
    file.unlink()
    found = shared.run(shared.folder, "verify", "other.lock.json")  # without --deep it is asked for its size
    assert found.returncode == 9 and f"{WEATHER} layer" in found.stderr


async def test_benchmark_whose_tag_was_moved_differs_from_its_pinned_reference(shared: Shared) -> None:
    digest = shared.told["benchmark"]["digest"]
    async with shared.registry.client() as client:
        right = await client.manifest("bench/weather", digest)
        assert right is not None
        changed = json.dumps({**right.parsed("here"), "annotations": {"moved": "yes"}}).encode()
        try:
            await client.put_manifest("bench/weather", "latest", changed)
            found = shared.run(shared.folder, "verify", f"{shared.reference}@{digest}")
            assert found.returncode == 9 and "tag: differs" in found.stderr
        finally:
            await client.put_manifest("bench/weather", "latest", right.data)


def test_deleted_manifest_is_refused(shared: Shared, tmp_path: Path) -> None:
    """The last one here: what is deleted stays so."""
    weather = shared.image(WEATHER)
    url = (
        f"http://{shared.registry.host}/v2/{weather.repository.partition('/')[2]}/manifests/{weather.digest}"
    )
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()
    shared.forget(WEATHER)
    ran = shared.run(tmp_path, "eval", shared.reference, "-o", "out.jsonl")
    assert ran.returncode == 9, ran.stderr
    assert "weather" in ran.stderr and (weather.digest or "")[7:19] in ran.stderr
    found = shared.run(shared.folder, "verify", shared.reference)
    assert found.returncode == 9 and f"{WEATHER} manifest: differs" in found.stderr
