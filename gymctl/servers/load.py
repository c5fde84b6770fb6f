"""From a server folder to its app; what is wrong with the entrypoint or the block is said in one line."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.applications import Starlette

from gymctl.contract.part import ServerPart
from gymctl.contract.pools import PoolTooSmall
from gymctl.errors import ConfigError, GymctlError, ServerError
from gymctl.servers.stack.base import ServerApp

_FRAMES = 4


def load(part: ServerPart, folder: Path | None = None) -> Starlette:
    """The app of a part, ready to serve. Raises ServerError or ConfigError, whose text names the mistake."""
    return built(imported(part.entrypoint, folder or Path.cwd()), part)


def imported(entrypoint: str, folder: Path) -> ServerApp:
    """`app` of the entrypoint file, with the folder on the import path."""
    path = folder / entrypoint
    if not path.is_file():
        raise ServerError(f"there is no `{entrypoint}` in the server folder", where=str(folder))
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    # A name of its own: several apps in one process (tests) must not take each other's annotations.
    name = re.sub(r"\W", "_", f"server_app{path.resolve()}")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ServerError(f"`{entrypoint}` is not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _import_failed(error, entrypoint, path) from error
    app = getattr(module, "app", None)
    if app is None:
        raise ServerError(
            f"`{entrypoint}` has no `app`", where=str(path), hint="end the file with `app = YourServer.app()`"
        )
    if not isinstance(app, ServerApp):
        raise ServerError(
            f"`app` in `{entrypoint}` is a {type(app).__name__}, not a gymctl server",
            where=str(path),
            hint="end the file with `app = YourServer.app()`",
        )
    return app


def built(app: ServerApp, part: ServerPart) -> Starlette:
    try:
        return app.build(part)
    except ValidationError as error:
        raise _bad_block(error, part) from error
    except GymctlError:
        raise
    except PoolTooSmall as error:
        raise ConfigError(
            f"connection pool `{error.field}`: {error}",
            where=part.name,
            hint="the limits of `global_aiohttp_connector_…` are for all workers together; 0 is none",
        ) from error
    except (TypeError, ValueError, LookupError) as error:
        name = app.server_class.__name__
        raise ServerError(
            f"{name} cannot be built: {type(error).__name__}: {error}",
            where=part.name,
            details=_frames(error),
        ) from error


def _import_failed(error: BaseException, entrypoint: str, path: Path) -> ServerError:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(path.parent))]
    last = (ours or frames)[-1]
    where = f"{last.filename}:{last.lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    what = f"`{entrypoint}` failed on import: {type(error).__name__}: {error}"
    hint = None
    if isinstance(error, ModuleNotFoundError):
        hint = "is the package in the requirements.txt beside it?"
    return ServerError(what, where=where, hint=hint, details=_frames(error))


def _frames(error: BaseException) -> Sequence[str]:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    return [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-_FRAMES:]]


def _bad_block(error: ValidationError, part: ServerPart) -> ConfigError:
    """One line per wrong key, with the value that was found; values of secrets are not repeated."""
    lines: list[str] = []
    for item in error.errors(include_url=False):
        key = ".".join(str(step) for step in item["loc"])
        place = f"`{key}`" if key else "the block"
        lines.append(f"{place}: {item['msg']}{_found(key, item)}")
    place = f"{part.name}.{part.kind}.{part.implementation}"
    if len(lines) == 1:
        return ConfigError(lines[0], where=place)
    return ConfigError(f"{len(lines)} keys do not fit", where=place, details=lines)


def _found(key: str, item: ErrorDetails) -> str:
    """The value that does not fit. A mapping or a list may hold secrets under keys of its own, as the whole
    block does when two of its keys do not go together."""
    value = item["input"]
    if item["type"] == "missing" or _is_secret(key):
        return ""
    return f", got a {type(value).__name__}" if isinstance(value, dict | list) else f", got {value!r:.80}"


def _is_secret(key: str) -> bool:
    return any(word in key.lower() for word in ("token", "key", "header", "secret", "password"))
