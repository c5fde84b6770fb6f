"""What differs between two images that should be one: steps and files, from what `docker save` writes."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gymctl.images.failure import without_mounts

_SHELL = re.compile(r"^RUN (\|\d+ (\S+=\S* )*)?(/bin/sh|/usr/local/bin/fixed-times) -c ")
_COMMENT = re.compile(r"\s*# buildkit$")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer that differs."""

    step: str
    """The instruction that made it: `RUN useradd gymctl`."""
    files: tuple[str, ...]
    """`etc/passwd: content, time` for each file that differs, in the order of the archive."""


def differences(first: Path, second: Path) -> list[Layer]:
    """The layers of two saved images that differ, in order. Of different lengths: those that both have.

    What differs outside of layers (variables, labels, the history) is one more, of the step `configuration`.
    """
    with ExitStack() as opened:
        one, other = (_Image(opened.enter_context(tarfile.open(path))) for path in (first, second))
        found = [
            Layer(step, tuple(_files(one.layer(number), other.layer(number))))
            for number, (step, is_equal) in enumerate(_steps(one, other))
            if not is_equal
        ]
        keys = tuple(_keys(one.config, other.config))
    return [*found, Layer("configuration", keys)] if keys else found


class _Image:
    """An image of an archive; both layouts that engines write have a `manifest.json`."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        manifest = json.load(self._open("manifest.json"))[0]
        self._layers: list[str] = manifest["Layers"]
        self.config: Mapping[str, Any] = json.load(self._open(manifest["Config"]))

    @property
    def digests(self) -> Sequence[str]:
        return self.config["rootfs"]["diff_ids"]

    @property
    def steps(self) -> list[str]:
        entries = self.config.get("history") or ()
        return [step(entry.get("created_by", "")) for entry in entries if not entry.get("empty_layer")]

    def layer(self, number: int) -> dict[str, tuple[str, ...]]:
        """Name -> its content, time, mode and owner."""
        with tarfile.open(fileobj=self._open(self._layers[number])) as layer:
            return {entry.name: _facts(layer, entry) for entry in layer}

    def _open(self, name: str) -> IO[bytes]:
        found = self._archive.extractfile(name)
        assert found is not None, f"{name} is no file of the archive"
        return found


def step(created_by: str) -> str:
    """A line of the history as its author wrote it in the Dockerfile, on one line."""
    return " ".join(without_mounts(_SHELL.sub("RUN ", _COMMENT.sub("", created_by))).split())


def _steps(one: _Image, other: _Image) -> Iterator[tuple[str, bool]]:
    steps = one.steps
    for number, (first, second) in enumerate(zip(one.digests, other.digests, strict=False)):
        yield (steps[number] if number < len(steps) else f"layer {number + 1}"), first == second


_FACTS = ("content", "time", "mode", "owner")


def _facts(layer: tarfile.TarFile, entry: tarfile.TarInfo) -> tuple[str, ...]:
    stream = layer.extractfile(entry) if entry.isreg() else None
    content = hashlib.file_digest(stream, "sha256").hexdigest() if stream is not None else entry.linkname  # type: ignore[arg-type]
    kind = entry.type.decode("ascii", "replace")
    return f"{kind} {content}", repr(entry.mtime), f"{entry.mode:o}", f"{entry.uid}:{entry.gid}"


def _files(one: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name in {**one, **other}:
        if name not in one or name not in other:
            yield f"{name}: only in the {'first' if name in one else 'second'}"
        elif one[name] != other[name]:
            pairs = zip(_FACTS, one[name], other[name], strict=True)
            yield f"{name}: {', '.join(fact for fact, first, second in pairs if first != second)}"
    if one == other:
        yield "the order of files, or what an archive says beside content, time, mode and owner"


def _keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for key in {**one, **other}:
        if key != "rootfs" and one.get(key) != other.get(key):
            yield key
