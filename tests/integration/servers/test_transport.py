"""The retry rule: resent when it was never sent, or when the receiver knows it; never otherwise."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gymctl import connections
from gymctl import transport as module
from gymctl.runtime import probe
from gymctl.servers.models import proxies
from gymctl.transport import Transport, TransportError

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nset-cookie: a=b=; path=/\r\nset-cookie: c=d\r\n\r\nok"

REMEMBERING = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-gymctl-remembers: 99\r\n\r\n"


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.02)


@asynccontextmanager
async def raw_server(
    port: int, reply: Callable[[int], bytes], host: str = "127.0.0.1"
) -> AsyncIterator[list[bytes]]:
    """Answers request n with `reply(n)` and hangs up; collects what it was sent. It remembers keys."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /livez "):
            writer.write(REMEMBERING)
        else:
            received.append(head)
            writer.write(reply(len(received)))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, host, port)
    try:
        yield received
    finally:
        server.close()


async def test_a_refused_connection_is_tried_until_somebody_listens(transport, free_port):
    call = asyncio.create_task(transport.call("POST", f"http://127.0.0.1:{free_port}/x", b""))
    await asyncio.sleep(0.1)
    assert not call.done()
    async with raw_server(free_port, lambda n: ANSWER) as received:
        answer = await call
    assert (answer.status, answer.body, len(received)) == (200, b"ok", 1)
    assert answer.cookies == {"a": "b=", "c": "d"}


async def test_calls_between_servers_and_probes_ask_no_proxy(transport, free_port, monkeypatch):
    """B43: Docker writes the proxies of its user's config.json into every container."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        for spelled in (name, name.lower()):
            monkeypatch.setenv(spelled, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with raw_server(free_port, lambda n: ANSWER) as received:
        answer = await transport.call("POST", f"http://127.0.0.1:{free_port}/x", b"", retry_seconds=0)
        assert answer.status == 200
        async with probe.client() as session:
            assert (await probe.foreign(session, f"http://127.0.0.1:{free_port}")).is_ready
    assert [head.split()[:2] for head in received] == [[b"POST", b"/x"], [b"GET", b"/"]]


async def test_a_refused_connection_is_given_up_in_time(transport, free_port):
    for seconds in (0, 0.1):
        with pytest.raises(TransportError) as caught:
            await transport.call("POST", f"http://127.0.0.1:{free_port}/x", b"", retry_seconds=seconds)
        assert caught.value.kind == "transport_unreachable"
        assert str(free_port) in str(caught.value)


async def test_waiting_for_a_server_can_be_cancelled(transport, free_port):
    call = asyncio.create_task(transport.call("GET", f"http://127.0.0.1:{free_port}/"))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_broken_connection_is_not_resent(transport, free_port):
    async with raw_server(free_port, lambda n: b"") as received:
        with pytest.raises(TransportError) as caught:
            await transport.call("POST", f"http://127.0.0.1:{free_port}/x", b"")
    assert caught.value.kind == "transport_peer_drop"
    assert len(received) == 1


async def test_a_broken_connection_is_resent_with_the_same_key(transport, free_port):
    broken = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ncut"
    async with raw_server(free_port, lambda n: ANSWER if n == 3 else broken) as received:
        answer = await transport.call("POST", f"http://127.0.0.1:{free_port}/x", b"", key="key-1")
    assert answer.body == b"ok"
    assert len(received) == 3
    assert all(b"idempotency-key: key-1\r\n" in head for head in received)


async def test_an_error_status_is_an_answer(transport, free_port):
    gone = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"
    async with raw_server(free_port, lambda n: gone) as received:
        answer = await transport.call("POST", f"http://127.0.0.1:{free_port}/x", b"", key="k")
    assert (answer.status, answer.reason, len(received)) == (503, "Busy", 1)


@pytest.mark.parametrize("url", ["nowhere", "http://", "http://host:port/x", "ftp://127.0.0.1/x"])
async def test_what_is_no_url_is_said_at_once(transport, url):
    async with asyncio.timeout(20):
        with pytest.raises(TransportError) as caught:
            await transport.call("POST", url, b"", key="k")
    assert (caught.value.kind, caught.value.url) == ("transport_unreachable", url)


async def test_a_certificate_that_is_not_accepted_is_said_at_once(transport, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_own_certificate(tmp_path))
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server, asyncio.timeout(20):
        with pytest.raises(TransportError) as caught:
            await transport.call("POST", url, b"")
    assert caught.value.kind == "transport_unreachable"
    assert "certificate" in str(caught.value).lower()


def _own_certificate(folder: Path) -> Path:
    """Key and certificate in one file, signed by nobody else."""
    file = folder / "own.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-days", "1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    made = subprocess.run([*command, "-keyout", "-"], capture_output=True, check=True)
    file.write_bytes(made.stdout)
    return file


async def test_a_server_that_moved_to_another_address_is_found_there(transport, free_port, monkeypatch):
    addresses = ["127.0.0.1", "127.0.0.2"]
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def moving(host: str, *args: object, **options: object) -> object:
        return await look_up(addresses.pop(0) if host == "moving" else host, *args, **options)

    monkeypatch.setattr(loop, "getaddrinfo", moving)
    url = f"http://moving:{free_port}/x"
    async with raw_server(free_port, lambda n: ANSWER) as first:
        await transport.call("GET", url)
        async with raw_server(free_port, lambda n: ANSWER, "127.0.0.2") as second:
            await transport.call("GET", url)
    assert (len(first), len(second)) == (1, 1)


async def test_a_call_takes_no_more_work_the_more_are_in_flight(transport, free_port):
    """BUG_CASES B78, in lines of Python that the client runs, which no busy machine changes."""
    few = await _lines_per_call(transport, free_port, in_flight=16)
    many = await _lines_per_call(transport, free_port, in_flight=192)
    assert few > 50
    assert many < few * 1.3


async def _lines_per_call(transport: Transport, port: int, in_flight: int) -> float:
    arrived = 0
    lines = 0
    have_all_arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        await reader.readuntil(b"\r\n\r\n")
        arrived += 1
        if arrived == in_flight:
            have_all_arrived.set()
        await have_all_arrived.wait()
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    def count(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return count

    def of_the_client(frame, event, arg):
        name = frame.f_code.co_filename
        return count if "/aiohttp/" in name or name in (module.__file__, connections.__file__) else None

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=256)
    sys.settrace(of_the_client)
    try:
        async with asyncio.timeout(90), asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(transport.call("GET", f"http://127.0.0.1:{port}/x"))
    finally:
        sys.settrace(None)
        server.close()
    assert arrived == in_flight
    return lines / in_flight


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_gets_its_password_and_no_message_repeats_it(transport, free_port, scheme):
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    way = proxies.route(f"{scheme}://model.example/v1", f"http://me:p%40ss@127.0.0.1:{free_port}")
    async with raw_server(free_port, lambda number: refusal) as received:
        try:
            told = repr(await transport.call("POST", f"{scheme}://model.example/v1", b"{}", route=way))
        except TransportError as error:
            told = "".join(traceback.format_exception(error)) + repr(error)
    assert b"proxy-authorization: Basic bWU6cEBzcw==" in received[0]
    told += repr(way)
    assert "407" in told
    assert "p%40ss" not in told and "p@ss" not in told and "bWU6cEBzcw" not in told


async def test_urls_are_told_without_user_info_and_query(transport, free_port):
    url = f"http://me:secret@127.0.0.1:{free_port}/a@b/x?key=secret"
    with pytest.raises(TransportError) as caught:
        await transport.call("POST", url, b"", retry_seconds=0)
    assert caught.value.url == f"http://127.0.0.1:{free_port}/a@b/x"
    assert "secret" not in repr(caught.value)
    async with raw_server(free_port, lambda number: ANSWER) as received:
        answer = await transport.call("POST", url, b"")
    assert b"/x?key=secret " in received[0]
    assert answer.url == f"http://127.0.0.1:{free_port}/a@b/x"


async def test_a_rollout_that_no_header_can_hold_is_left_out(transport, free_port):
    async with raw_server(free_port, lambda number: ANSWER) as received:
        token = module.ROLLOUT.set("a\r\nx-forged: 1")
        try:
            await transport.call("POST", f"http://127.0.0.1:{free_port}/x", b"")
        finally:
            module.ROLLOUT.reset(token)
    assert b"forged" not in received[0]
