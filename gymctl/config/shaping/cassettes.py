"""`--model record:FILE` and `--model replay:FILE`: a cassette before every model server, or in its place.

A recorder takes the name of the server that it records, which moves to `<name>_live`: whoever asks the model
asks the cassette. A replay needs nothing of a model's block, which goes before references are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, Literal

from gymctl.config.model import Origin, Write
from gymctl.config.tree.origins import DEFAULT, OriginTree, Path, at, dotted, first, leaves, uniform
from gymctl.contract.cassette import IMPLEMENTATION
from gymctl.errors import ConfigError, UsageError

MODELS = "responses_api_models"
ON_MISS = ("fail", "live", "mock")
_FORM = "record:FILE, record:FILE:NAME or replay:FILE"
_LIVE = "_live"
_LISTENING = ("host", "port")
"""Where the model is looked for: of the server that takes its name."""


@dataclass(frozen=True)
class Cassette:
    """What `--model` and `--on-miss` say."""

    mode: Literal["record", "replay"]
    path: File
    model: str | None
    """The name of the model that is recorded, when the flag says it."""
    on_miss: str

    @property
    def asks_a_model(self) -> bool:
        return self.mode == "record" or self.on_miss == "live"

    @property
    def origin(self) -> Origin:
        return Origin(f"--model {self.mode}:{self.path.name}")


def spoken(
    model: str | None, on_miss: str | None, cwd: File, find: Callable[[str], File | None]
) -> Cassette | None:
    """What the flags mean; None for the name of a model. `find` looks below the search roots for a cassette
    that is not in `cwd`. Raises UsageError."""
    mode, colon, rest = (model or "").partition(":")
    if on_miss is not None and on_miss not in ON_MISS:
        raise UsageError(f"`--on-miss` must be {', '.join(ON_MISS[:-1])} or {ON_MISS[-1]}, got `{on_miss}`")
    if not colon or (mode != "record" and mode != "replay"):
        if on_miss is not None:
            raise UsageError("`--on-miss` goes with --model replay:FILE", where="--on-miss")
        return None
    if on_miss is not None and mode == "record":
        raise UsageError("`--on-miss` goes with replay; a recording asks the model", where="--on-miss")
    file, has_name, name = rest.partition(":") if mode == "record" else (rest, "", "")
    if not file or (has_name and not name):
        raise UsageError(f"`--model {model}` names no {'model' if file else 'file'}", hint=_FORM)
    path = (cwd / File(file).expanduser()).resolve()
    if mode == "replay" and not path.exists():
        path = find(file) or path
    return Cassette(mode, path, name or None, on_miss or "fail")


def insert(
    document: dict[Any, Any], tree: dict[Any, OriginTree], cassette: Cassette
) -> Mapping[Path, Sequence[Write]]:
    """Change the document and its origins; returns who wrote what is new. ConfigError: there is no model."""
    names = [name for name, block in document.items() if _is_model(block)]
    if not names:
        raise ConfigError(
            f"there is no model server to {cassette.mode}",
            where=str(cassette.origin),
            hint="--model-type NAME",
        )
    written: dict[Path, Sequence[Write]] = {}
    for name in names:
        old, old_tree = document[name], tree.get(name)
        implementation, settings = next(iter(old[MODELS].items()))
        given = settings if isinstance(settings, dict) else {}
        block = _block(cassette, {key: given[key] for key in (*_LISTENING, "num_workers") if key in given})
        if cassette.asks_a_model:
            live = _free(f"{name}{_LIVE}", document)
            block["model_server"] = {"type": MODELS, "name": live}
            kept = {key: value for key, value in given.items() if key not in _LISTENING}
            document[live] = {**old, MODELS: {implementation: kept}}
            tree[live] = old_tree if old_tree is not None else {}
            branch: Any = at(tree[live], (MODELS, implementation))
            if isinstance(branch, dict):
                for key in _LISTENING:
                    branch.pop(key, None)
            written.update(_moved(live, name, document[live], tree[live], cassette.origin))
        document[name] = {MODELS: {IMPLEMENTATION: block}}
        tree[name] = uniform(document[name], cassette.origin)
        for path, value in leaves(document[name], (name,)):
            written[path] = [Write(cassette.origin, value, dotted(path))]
    return written


def recorded(settings: Any) -> str | None:
    """The server that a cassette's block records, or asks."""
    reference = settings.get("model_server") if isinstance(settings, dict) else None
    return reference.get("name") if isinstance(reference, dict) else None


def _moved(
    name: str, old: Any, block: dict[Any, Any], tree: OriginTree, origin: Origin
) -> Iterator[tuple[Path, Sequence[Write]]]:
    for path, value in leaves(block):
        wrote = Write(first(at(tree, path)) or DEFAULT, value, dotted((old, *path)))
        yield (name, *path), [wrote, Write(origin, f"`{old}` is now `{name}`", name, "composed")]


def _is_model(block: object) -> bool:
    inner = block.get(MODELS) if isinstance(block, dict) else None
    return isinstance(inner, dict) and bool(inner)


def _block(cassette: Cassette, carried: dict[str, Any]) -> dict[str, Any]:
    path = str(cassette.path)
    mount = {"path": path, "writable": True} if cassette.mode == "record" else path
    return {
        "entrypoint": "app.py",
        "mode": cassette.mode,
        "file": path,
        "on_miss": cassette.on_miss,
        "mounts": [mount],
        **carried,
    }


def _free(name: str, taken: Collection[Any]) -> str:
    while name in taken:
        name += "_"
    return name
