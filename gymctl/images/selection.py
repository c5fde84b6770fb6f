"""Which images a benchmark consists of, for who builds, pushes or bundles it: its own, and models'.

Whoever gets the images chooses the model. So beside the model server that is chosen, all built-in ones belong
to the set that cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from gymctl.config.checks.folders import is_server
from gymctl.config.families import family_of
from gymctl.config.model import Config, ServerBlock
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.shaping.standins import DUMMY
from gymctl.contract.servers import KINDS, ServerKind
from gymctl.paths import bundled

MODELS: ServerKind = "responses_api_models"
HEAVY = ("llama_cpp_model",)
"""Built-in model servers that bring hundreds of megabytes: their images are made where they are chosen."""


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """A server implementation that no configuration has to start for its image to be made."""

    kind: ServerKind
    implementation: str
    folder: Path

    @property
    def place(self) -> str:
        """`responses_api_models/openai_model`: below a search root."""
        return f"{self.kind}/{self.implementation}"


def model_servers() -> list[ServerFolder]:
    """The built-in model servers that go with every benchmark, by name."""
    folders = sorted((bundled() / "server_images" / MODELS).iterdir())
    return [
        ServerFolder(MODELS, folder.name, folder)
        for folder in folders
        if is_server(folder) and folder.name not in HEAVY
    ]


def named(word: str, roots: SearchRoots) -> list[ServerFolder]:
    """The servers that `weather` or `resources_servers/weather` names: one of a kind, of the highest root."""
    kind, _, name = word.rpartition("/")
    kinds: list[ServerKind] = [one for one in KINDS if kind in ("", one)]
    if not name or name.startswith("."):
        return []
    return [ServerFolder(one, name, folder) for one in kinds for folder in _found(f"{one}/{name}", roots)]


def with_images_of(config: Config, more: Sequence[ServerFolder]) -> Config:
    """`config` with a block for each of these, and without what stands in for a model that nobody chose: its
    images are then what `plan_project` plans. For nothing but images."""
    blocks = {name: block for name, block in config.servers.items() if block.implementation != DUMMY}
    held = {block.folder.resolve() for block in blocks.values()}
    added = {one.place: _block(one) for one in more if one.folder.resolve() not in held}
    return replace(config, servers={**blocks, **added})


def is_ours_to_lock(block: ServerBlock) -> bool:
    """Whether a requirements.lock may be written into its folder: not into one of the installation that a
    benchmark only happens to use."""
    is_named = block.name == f"{block.kind}/{block.implementation}"
    return block.family == "gymctl" and (
        is_named or not block.folder.resolve().is_relative_to(bundled().resolve())
    )


def _found(place: str, roots: SearchRoots) -> Iterator[Path]:
    folder = roots.find(place)
    if folder is not None and is_server(folder):
        yield folder


def _block(one: ServerFolder) -> ServerBlock:
    return ServerBlock(
        name=one.place,
        kind=one.kind,
        implementation=one.implementation,
        entrypoint="app.py",
        folder=one.folder,
        settings=cast(Mapping[str, object], {}),
        calls=(),
        host="127.0.0.1",
        port=-1,
        is_port_explicit=False,
        family=family_of(one.folder),
    )
