"""A small bundle without an engine: two images that share a layer, a benchmark of three files, SBOMs."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from pathlib import Path

from gymctl.artefacts import layout, saved
from gymctl.artefacts.bundle import write
from gymctl.artefacts.content import Content, Item, content
from gymctl.images.lock import Lock, LockedImage

ROWS = "benchmarks/weather/data/example.jsonl"
APP = "resources_servers/weather/app.py"
NAMES = ("Dockerfile.base", "resources_servers/weather")


def layer(name: str, text: bytes) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    return held.getvalue()


LAYERS = (layer("usr/bin/python3", b"python" * 3000), layer("srv/server/app.py", b"app"))
IMAGES = {NAMES[0]: LAYERS[:1], NAMES[1]: LAYERS}


def config_of(layers: tuple[bytes, ...]) -> bytes:
    diff_ids = [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    return json.dumps(config).encode()


def docker_save(file: Path, *, is_old: bool = False) -> Path:
    """What `docker save` of both images writes; `is_old`: as Engine 20.10 does."""
    with tarfile.open(file, "w") as archive:
        described = [_add_image(archive, number, is_old) for number in range(len(NAMES))]
        _add(archive, "manifest.json", json.dumps(described).encode())
    return file


def _add_image(archive: tarfile.TarFile, number: int, is_old: bool) -> dict[str, object]:
    layers = IMAGES[NAMES[number]]
    config = config_of(layers)
    digest = hashlib.sha256(config).hexdigest()
    place = f"{digest}.json" if is_old else f"blobs/sha256/{digest}"
    _add(archive, place, config)
    names: list[str] = []
    for depth, one in enumerate(layers):
        own = f"{number}{depth}" * 16 + "/layer.tar"
        names.append(own if is_old else f"blobs/sha256/{hashlib.sha256(one).hexdigest()}")
        if is_old and number > depth:
            link = tarfile.TarInfo(own)
            link.type, link.linkname = tarfile.SYMTYPE, f"../{f'{depth}{depth}' * 16}/layer.tar"
            archive.addfile(link)
        elif names[-1] not in archive.getnames():
            _add(archive, names[-1], one)
    return {"Config": place, "RepoTags": None, "Layers": names}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def lock() -> Lock:
    images = [
        LockedImage(
            name=name,
            repository=f"gymctl/{name.rpartition('/')[2].lower().replace('.', '-')}",
            tag="0" * 20,
            id=f"sha256:{hashlib.sha256(config_of(layers)).hexdigest()}",
            platform="linux/amd64",
            inputs="0" * 64,
            base="python:3.13-slim",
        )
        for name, layers in IMAGES.items()
    ]
    return Lock(gymctl="0.1.0").with_images(images)


def benchmark() -> Content:
    files = {
        "benchmarks/weather/config.yaml": Item.made(b"weather: {}\n"),
        ROWS: Item.made(b'{"id": 1}\n'),
        APP: Item.made(b"print('weather')\n"),
        "resources_servers/weather/run.sh": Item.made(b"#!/bin/sh\n"),
    }
    return content(name="weather", benchmark="weather", files=files, data=(ROWS,), lock=lock())


def packed(folder: Path) -> list[layout.PackedImage]:
    found = {one.id: one for one in saved.find(docker_save(folder / "images.tar"))}
    return [
        layout.PackedImage(one, found[one.id], json.dumps({"bom": one.name}).encode())
        for one in lock().images
    ]


def make(folder: Path) -> Path:
    """The bundle `weather.gymb` in this folder."""
    output = folder / "weather.gymb"
    write(layout.files(benchmark(), packed(folder)), folder / "new", output, threading.Event())
    return output
