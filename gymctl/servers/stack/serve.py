"""Listening: uvicorn with our settings, one process or several workers, a quick end on SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import uvicorn
import uvloop
from starlette.applications import Starlette
from uvicorn.supervisors import Multiprocess

from gymctl.connections import keep_alive
from gymctl.contract.part import HttpSettings, Pool, ServerPart
from gymctl.contract.pools import Machine
from gymctl.errors import PrerequisiteError, ServerError

KEEPALIVE_SECONDS = 30
GRACEFUL_SECONDS = 0.5
BACKLOG = 4096
DESCRIPTORS = 65535
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def raise_descriptor_limit() -> None:
    """One rollout in flight holds several sockets; the usual soft limit of 1024 is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listening(host: str, port: int, pool: Pool | None = None) -> socket.socket:
    """A bound socket, which `accepting` makes listen. Accepted connections inherit its keep-alive probes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keep_alive(sock, pool or Pool())
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise _refused(host, port, error) from error
    sock.setblocking(False)
    sock.set_inheritable(True)
    return sock


def accepting(sock: socket.socket) -> None:
    """Listen. Two processes may bind one port while neither listens yet: the second learns of it here."""
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        host, port, *_ = sock.getsockname()
        raise _refused(host, port, error) from error


def _refused(host: str, port: int, error: OSError) -> PrerequisiteError:
    return PrerequisiteError(f"cannot listen on {host}:{port}: {error.strerror}")


def machine() -> Machine:
    """What bounds the number of connections from here."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        first, last = map(int, _EPHEMERAL_PORTS.read_text().split())
    except (OSError, ValueError):  # not on Linux
        ports = None
    else:
        ports = first, last
    return Machine(descriptors=None if soft == resource.RLIM_INFINITY else soft, ports=ports)


def settings(
    app: Any, http: HttpSettings | None = None, *, lifespan: Literal["on", "off"] = "on", **more: Any
) -> uvicorn.Config:
    http = http or HttpSettings()
    return uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan=lifespan,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=http.trusted_proxies is not None,
        forwarded_allow_ips=list(http.trusted_proxies or ()),
        access_log=http.show_access_log,
        backlog=BACKLOG,
        timeout_keep_alive=KEEPALIVE_SECONDS,
        timeout_graceful_shutdown=cast(int, GRACEFUL_SECONDS),
        timeout_worker_healthcheck=http.worker_silence_seconds,
        **more,
    )


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: several may share a loop, and a wanted end is exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(apps: Sequence[tuple[Starlette, socket.socket]], http: HttpSettings) -> None:
    """Serve until a signal comes; a second one ends at once. Raises what the start of an app raises."""
    uvloop.run(_run(apps, http))


async def _run(apps: Sequence[tuple[Starlette, socket.socket]], http: HttpSettings) -> None:
    serving: dict[asyncio.Task[None], QuietServer] = {}

    def stop() -> None:
        for task, server in serving.items():
            server.force_exit = server.should_exit
            server.should_exit = True
            if not server.started:  # uvicorn looks only when it serves; a start may take minutes
                task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with asyncio.TaskGroup() as group:
            for app, sock in apps:
                server = QuietServer(settings(app, http, lifespan="off"))
                serving[group.create_task(_serve(app, server, sock))] = server
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _serve(app: Starlette, server: QuietServer, sock: socket.socket) -> None:
    """The lifespan is ours rather than uvicorn's, which makes a page of traceback of every failed start."""
    async with app.router.lifespan_context(app):
        accepting(sock)  # not before: a caller would wait for an answer instead of being refused
        await server.serve(sockets=[sock])


class _Workers(Multiprocess):
    """uvicorn's supervisor, which would not notice before `worker_silence_seconds` that a worker has died
    while it was asked: our copy of the worker's end of their pipe kept that open."""

    def init_processes(self) -> None:
        super().init_processes()
        self._let_go()

    def keep_subprocess_alive(self) -> None:
        super().keep_subprocess_alive()
        self._let_go()

    def _let_go(self) -> None:
        for worker in self.processes:
            worker.child_conn.close()


def run_workers(part: ServerPart, factory: str, sock: socket.socket) -> None:
    """Several processes on one socket; each imports the app by itself. Raises when one does not start."""
    config = settings(factory, part.http, factory=True, workers=part.workers)
    supervisor = _Workers(config, sockets=[sock])
    supervisor.run()
    # Negative: told to stop, and died of that signal. That one failed uvicorn says in the log only.
    if any((worker.exitcode or 0) > 0 for worker in supervisor.processes):
        raise ServerError("a worker process did not start")
