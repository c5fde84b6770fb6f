"""Files of the host that a server may read: a block's optional `mounts`, absolute paths, read-only.

    policy_model:
      responses_api_models:
        llama_cpp_model:
          model_path: /data/models/other.gguf
          mounts: [/data/models]

Each is mounted at its own path, so that one configuration holds in containers and in local processes. An
entry `{path: /data/run.cassette, writable: true}` names a file that the server may also write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gymctl.compose.model import Mount
from gymctl.errors import ConfigError

KEY = "mounts"
RESERVED = ("/", "/dev", "/etc", "/opt", "/proc", "/run", "/srv", "/sys", "/tmp", "/usr", "/var")
"""Over these the image or the engine lays its own; what is below /opt, /srv or /var of the host is fine."""


def declares(settings: Mapping[str, Any]) -> bool:
    """Whether a block's `mounts` is ours: a list. Anything else belongs to the implementation."""
    return isinstance(settings.get(KEY), list)


def mounts(server: str, settings: Mapping[str, Any]) -> tuple[Mount, ...]:
    """The mounts of one server. Raises ConfigError for a path that cannot be mounted at its own place."""
    if not declares(settings):
        return ()
    wanted: dict[str, bool] = {}
    for value in settings[KEY]:
        is_writable = (
            isinstance(value, dict) and set(value) == {"path", "writable"} and bool(value["writable"])
        )
        path = _checked(server, value["path"] if is_writable else value)
        wanted[path] = wanted.get(path, False) or is_writable
    return tuple(
        Mount(source=path, target=path, read_only=not is_writable) for path, is_writable in wanted.items()
    )


def captures(folders: Iterable[str]) -> tuple[Mount, ...]:
    """The folders in which a model server records its calls: writable, at their own place, so that what the
    server writes is what the host reads. Raises ConfigError for a place that the image needs."""
    for folder in folders:
        if ".." in folder.split("/") or folder in RESERVED:
            raise ConfigError(
                f"model calls cannot be recorded in {folder}: it is mounted at its own place",
                where="model_call_capture_dir",
                hint="name a folder of its own, such as /data/calls",
            )
    return tuple(Mount(source=folder, target=folder, read_only=False) for folder in folders)


def skills(folder: Path | None, others: Iterable[Mount]) -> tuple[Mount, ...]:
    """The folder of skills, for agents: rows name it by its place on the host."""
    if folder is None or str(folder) in {mount.target for mount in others}:
        return ()
    path = _checked("skills", str(folder))
    return (Mount(source=path, target=path, read_only=True),)


def _checked(server: str, value: object) -> str:
    where = f"{server}…{KEY}"
    if not isinstance(value, str) or not PurePosixPath(value).is_absolute() or ".." in value.split("/"):
        raise ConfigError(
            f"`{KEY}` takes absolute paths of this machine, got {value!r}",
            where=where,
            hint="each is mounted read-only at its own path; {path: FILE, writable: true} may be written",
        )
    path = str(PurePosixPath(value))
    if path in RESERVED:
        raise ConfigError(f"`{path}` cannot be mounted: it is the image's own", where=where)
    return path
