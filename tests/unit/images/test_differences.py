"""Which step and which files differ between two saved images."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from gymctl.images.differences import Layer, differences, step


def layer(**files: tuple[str, int, int]) -> bytes:
    """File -> text, time, mode."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, (text, time, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(text), time, mode
            archive.addfile(entry, io.BytesIO(text.encode()))
    return written.getvalue()


def save(path: Path, *layers: bytes, **config: Any) -> Path:
    digests = [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]
    steps = [{"created_by": f"RUN /bin/sh -c make {number} # buildkit"} for number in range(len(layers))]
    history = [{"created_by": "ENV A=1", "empty_layer": True}, *steps]
    files = {
        "config": json.dumps({"rootfs": {"diff_ids": digests}, "history": history, **config}).encode(),
        **{f"blobs/{number}": one for number, one in enumerate(layers)},
    }
    manifest = [{"Config": "config", "Layers": [f"blobs/{number}" for number in range(len(layers))]}]
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_the_step_and_what_differs_of_each_file_are_told(tmp_path: Path) -> None:
    same = layer(a=("x", 1, 0o644))
    first = layer(a=("x", 1, 0o644), b=("x", 1, 0o644), c=("x", 1, 0o644), d=("x", 1, 0o644))
    second = layer(a=("x", 1, 0o644), b=("y", 2, 0o644), c=("x", 1, 0o755), e=("x", 1, 0o644))
    found = differences(save(tmp_path / "1", same, first), save(tmp_path / "2", same, second))
    told = ("b: content, time", "c: mode", "d: only in the first", "e: only in the second")
    assert found == [Layer("RUN make 1", told)]


def test_equal_images_have_no_differences_and_other_orders_and_variables_are_some(tmp_path: Path) -> None:
    one = layer(a=("x", 1, 0o644), b=("x", 1, 0o644))
    other = layer(b=("x", 1, 0o644), a=("x", 1, 0o644))
    assert differences(save(tmp_path / "1", one), save(tmp_path / "2", one)) == []
    found = differences(save(tmp_path / "1", one), save(tmp_path / "2", other, created="now"))
    assert [each.step for each in found] == ["RUN make 0", "configuration"]
    assert "order" in found[0].files[0]
    assert found[1].files == ("created",)


def test_steps_read_as_in_the_dockerfile() -> None:
    assert step("RUN |1 A=b /bin/sh -c apt-get install git # buildkit") == "RUN apt-get install git"
    assert step("RUN /usr/local/bin/fixed-times -c cp -r   a b # buildkit") == "RUN cp -r a b"
    assert step("COPY . /srv # buildkit") == "COPY . /srv"
