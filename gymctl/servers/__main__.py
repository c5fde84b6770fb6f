"""`python -m gymctl.servers`: read the part file, then be that server, or the head."""

from __future__ import annotations

import logging
import sys

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.applications import Starlette

from gymctl.contract import pools
from gymctl.contract.part import HeadPart, ServerPart
from gymctl.errors import ConfigError, GymctlError
from gymctl.servers import head
from gymctl.servers.load import load
from gymctl.servers.stack import logs, serve
from gymctl.servers.stack.base import part_path

FACTORY = "gymctl.servers.__main__:worker"
logger = logging.getLogger("gymctl.server")


def read_part() -> ServerPart | HeadPart:
    path = part_path()
    try:
        document = from_json(path.read_bytes())  # not orjson: it makes floats of integers above 64 bits
        is_head = isinstance(document, dict) and document.get("role") == "head"
        return (HeadPart if is_head else ServerPart).model_validate(document)
    except OSError as error:
        raise ConfigError(f"the part file cannot be read: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"the part file is not usable: {place}: {first['msg']}", where=str(path)) from error
    except ValueError as error:
        raise ConfigError(f"the part file is not JSON: {error}", where=str(path)) from error


def worker() -> Starlette:
    """The app in one of several worker processes."""
    part = read_part()
    assert isinstance(part, ServerPart)
    logs.configure(part.name, part.log_level)
    return load(part)


def run_server(part: ServerPart) -> None:
    logs.configure(part.name, part.log_level)
    app = load(part)
    sock = serve.listening(part.bind_host, part.bind_port, part.pool)
    logger.info("%s %s listens on %s:%d", part.kind, part.implementation, part.bind_host, part.bind_port)
    tell_pool(part)
    if part.workers > 1:
        serve.run_workers(part, FACTORY, sock)
    else:
        serve.run([(app, sock)], part.http)


def tell_pool(part: ServerPart) -> None:
    """Once for a server, however many workers it has (CONTRACT 2.6)."""
    machine = serve.machine()
    logger.info(pools.line(part.pool, part.workers, machine))
    for warning in pools.warnings(part.pool, part.workers, machine):
        logger.warning(warning)


def run_head(part: HeadPart) -> None:
    logs.configure("head", part.log_level)
    serve.run(
        [(app, serve.listening(part.bind_host, port, part.pool)) for app, port in head.views(part)], part.http
    )


def main() -> int:
    name = "head"
    try:
        part = read_part()
        name = part.name if isinstance(part, ServerPart) else name
        serve.raise_descriptor_limit()
        if isinstance(part, ServerPart):
            run_server(part)
        else:
            run_head(part)
    except GymctlError as error:
        for line in f"error: {error}".splitlines():
            (sys.__stderr__ or sys.stderr).write(f"({name}) {line}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
