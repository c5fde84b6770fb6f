"""Listening: uvicorn with our settings, one process or several workers, a quick end on SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import Any, cast

import uvicorn
import uvloop
from uvicorn.supervisors import Multiprocess

from gymctl.contract.part import Pool, ServerPart
from gymctl.errors import PrerequisiteError
from gymctl.transport import keep_alive

KEEPALIVE_SECONDS = 30
GRACEFUL_SECONDS = 0.5
BACKLOG = 4096
DESCRIPTORS = 65535


def raise_descriptor_limit() -> None:
    """One rollout in flight holds several sockets; the usual soft limit of 1024 is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listening(host: str, port: int, pool: Pool | None = None) -> socket.socket:
    """A bound socket. Accepted connections inherit its keep-alive probes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keep_alive(sock, pool or Pool())
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise PrerequisiteError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    sock.setblocking(False)
    sock.set_inheritable(True)
    return sock


def settings(app: Any, *, access_log: bool = False, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=access_log,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEPALIVE_SECONDS,
        timeout_graceful_shutdown=cast(int, GRACEFUL_SECONDS),
        **more,
    )


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: several may share a loop, and a wanted end is exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(servers: Sequence[tuple[uvicorn.Config, socket.socket]]) -> bool:
    """Serve until a signal comes; a second one ends at once. False when a server could not start."""
    return uvloop.run(_run(servers))


async def _run(servers: Sequence[tuple[uvicorn.Config, socket.socket]]) -> bool:
    running = [(QuietServer(config), sock) for config, sock in servers]

    def stop() -> None:
        for server, _ in running:
            server.force_exit = server.should_exit
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as group:
        for server, sock in running:
            group.create_task(_serve(server, sock, stop))
    return all(server.started for server, _ in running)


async def _serve(server: QuietServer, sock: socket.socket, stop: Any) -> None:
    """When one server ends (its start-up failed), the others end with it."""
    # uvicorn ends the whole process when its start-up failed; the others here want to stop in order.
    with contextlib.suppress(SystemExit):
        await server.serve(sockets=[sock])
    if not server.should_exit or not server.started:
        stop()


def run_workers(part: ServerPart, factory: str, sock: socket.socket) -> None:
    """Several processes on one socket; each imports the app by itself."""
    config = settings(factory, factory=True, workers=part.workers, access_log=part.show_access_log)
    Multiprocess(config, sockets=[sock]).run()
