"""A bundle runs in an engine that has no image, no network and no registry; one that is damaged does not."""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.own_engine import OwnEngine, needs_own_engine, own_engine
from fakes.program import gymctl, read_lines

from gymctl.artefacts import layout, plain_tar
from gymctl.artefacts.opened import open_bundle

ROOT = Path(__file__).parents[3]
CASSETTE = ROOT / "benchmarks/arithmetic/smollm2.cassette"
TASKS = 5
CONFIG = """\
sums:
  resources_servers:
    sums:
      entrypoint: app.py
      domain: math
sums_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      model_server: {type: responses_api_models, name: policy_model}
      resources_server: {type: resources_servers, name: sums}
      datasets:
        - name: sums
          type: benchmark
          jsonl_fpath: benchmarks/sums/data/sums.jsonl
          prepare_script: benchmarks/sums/prepare.py
sums_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: sums_agent}
"""
APP = """\
from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse


class Sums(ResourcesServer):
    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=1.0)


app = Sums.app()
"""

pytestmark = needs_own_engine


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An author's folder: five sums that a cassette knows the answers to."""
    folder = tmp_path_factory.mktemp("author")
    rows = (ROOT / "benchmarks/arithmetic/data/arithmetic.jsonl").read_text("utf-8").splitlines()[:TASKS]
    files = {
        "benchmarks/sums/config.yaml": CONFIG,
        "benchmarks/sums/data/sums.jsonl": "".join(f"{row}\n" for row in rows),
        "benchmarks/sums/prepare.py": "def prepare(): ...\n",
        "resources_servers/sums/app.py": APP,
        "resources_servers/sums/requirements.txt": "",
    }
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    shutil.copy(CASSETTE, folder / "sums.cassette")
    return folder


@pytest.fixture(scope="module")
def bundle(project: Path) -> Iterator[Path]:
    """`sums.gymb`, written twice with the same bytes."""
    digests: set[str] = set()
    for _ in range(2):
        done = gymctl("bundle", "sums", "--cassette", "sums.cassette", cwd=project)
        assert done.returncode == 0, done.stderr
        with (project / "sums.gymb").open("rb") as stream:
            digests.add(hashlib.file_digest(stream, "sha256").hexdigest())
    assert len(digests) == 1, "bundled twice, and not the same bytes"
    assert [path.name for path in project.iterdir() if path.name.startswith(".gymctl-")] == []
    yield project / "sums.gymb"
    images = open_bundle(project / "sums.gymb").lock.images
    (own,) = (one.id for one in images if "sums" in one.name)
    loaded = [layout.reference(one) for one in images]
    subprocess.run(["docker", "image", "rm", "--force", own, *loaded], capture_output=True, check=False)


@dataclass
class Stranger:
    """Somebody with the file, an engine that has nothing, and no network."""

    engine: OwnEngine
    folder: Path

    def gymctl(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, **self.engine.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        command = [*self.engine.prefix, sys.executable, "-m", "gymctl", *map(str, arguments)]
        return subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=240, check=False
        )

    def images(self) -> set[str]:
        listed = self.engine.docker("image", "ls", "--quiet", "--no-trunc").stdout.decode()
        return set(listed.split())


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    with own_engine() as engine:
        yield Stranger(engine, tmp_path)


def test_a_bundle_is_all_that_a_stranger_needs(stranger: Stranger, bundle: Path) -> None:
    by_name = {image.name: image.id for image in open_bundle(bundle).lock.images}
    locked = set(by_name.values())
    assert stranger.images() == set()
    stranger.engine.docker("load", "--input", str(bundle))
    assert stranger.images() == locked, "plain docker load"
    stranger.engine.docker("image", "rm", "--force", by_name["resources_servers/sums"])

    done = stranger.gymctl("unbundle", bundle, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert stranger.images() == locked == {image["id"] for image in told["images"]}
    assert (Path(told["folder"]) / "benchmarks/sums/data/sums.jsonl").is_file()

    done = stranger.gymctl("eval", bundle, "--model", "replay:cassettes/sums.cassette", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    records = read_lines(stranger.folder / "out.jsonl")
    assert [record["reward"] for record in records] == [1.0] * TASKS
    assert all(record["response"]["output"] for record in records)
    passport = json.loads((stranger.folder / "out" / "passport.json").read_text())
    assert passport["benchmark"] == {"reference": "sums.gymb", "digest": told["digest"]}
    assert stranger.engine.docker("ps", "--all", "--quiet").stdout == b""


def test_where_the_author_worked_is_told_to_nobody(project: Path, bundle: Path) -> None:
    with bundle.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        assert content.find(b"benchmarks/sums/config.yaml") >= 0
        assert content.find(APP.encode()) >= 0, "the layers of images can be read as they are, too"
        assert content.find(str(project).encode()) == -1


def test_one_flipped_byte_of_a_layer_is_refused_before_anything_is_loaded(bundle: Path) -> None:
    locked = open_bundle(bundle).lock.find("Dockerfile.base", open_bundle(bundle).lock.images[0].platform)
    assert locked is not None
    with bundle.open("rb") as stream:
        entries = {entry.name: entry for entry in plain_tar.scan(stream, "")}
        config = entries[f"blobs/sha256/{locked.id.removeprefix('sha256:')}"]
        layers = json.loads(b"".join(plain_tar.chunks(stream, config.offset, config.size)))["rootfs"][
            "diff_ids"
        ]
        layer = entries[f"blobs/sha256/{layers[-1].removeprefix('sha256:')}"]
    damaged = bundle.with_name("damaged.gymb")
    shutil.copy(bundle, damaged)
    with damaged.open("r+b") as stream:
        stream.seek(layer.offset + layer.size // 2)
        byte = stream.read(1)[0]
        stream.seek(-1, io.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))
    done = gymctl("unbundle", damaged, cwd=bundle.parent)
    assert done.returncode == 9
    assert f"layer {len(layers)} of Dockerfile.base is damaged" in done.stderr
    assert done.stdout == ""
    for command in ("eval", "up"):
        done = gymctl(command, damaged, "--model", "replay:cassettes/sums.cassette", cwd=bundle.parent)
        assert (done.returncode, "is damaged" in done.stderr) == (9, True)


def test_load_sh_checks_and_loads_without_gymctl(bundle: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", bundle, "-C", tmp_path], check=True)
    done = subprocess.run(["sh", tmp_path / "load.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Loaded image: gymctl-bundle/") == len(open_bundle(bundle).lock.images)
    with (tmp_path / "README.md").open("a") as stream:
        stream.write("changed")
    done = subprocess.run(["sh", tmp_path / "load.sh"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "README.md: FAILED" in done.stdout + done.stderr


def test_a_full_disk_leaves_no_half_bundle(project: Path, bundle: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "gymctl-test", small], check=True)
    try:
        done = gymctl("bundle", "sums", "--output", small / "sums.gymb", cwd=project)
        assert done.returncode == 3, done.stderr
        assert "the disk is full" in done.stderr or "No space left on device" in done.stderr
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


def test_rows_that_were_not_made_are_told_before_anything_is_built(tmp_path: Path) -> None:
    name = f"unseen-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "resources_servers" / name
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("print('no server')\n")
    (folder / "requirements.txt").write_text("")
    rows = {"name": "x", "type": "benchmark", "jsonl_fpath": "rows.jsonl", "prepare_script": "prepare.py"}
    block = {"entrypoint": "app.py", "domain": "other", "datasets": [rows]}
    (tmp_path / "a.yaml").write_text(json.dumps({"unseen": {"resources_servers": {name: block}}}))

    done = gymctl("bundle", "a.yaml", cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    assert "has no file here" in done.stderr
    assert "dataset prepare" in done.stderr
    label = f"label=dev.gymctl.implementation=resources_servers/{name}"
    built = subprocess.run(
        ["docker", "image", "ls", "-q", "--filter", label], capture_output=True, check=True
    )
    assert built.stdout == b""
