"""A company's network on one address: an index behind TLS and a token, reached through a proxy with a login.

    with company(address, folder) as walls:
        walls.block                             # what `build:` says about them
        walls.index_hits, walls.proxy_hits      # who asked for what, with which login

The index (PEP 503) has one wheel, made here. The proxy knows CONNECT only, and refuses who has no login.
"""

from __future__ import annotations

import base64
import hashlib
import io
import secrets
import select
import socket
import ssl
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PACKAGE = "walled-garden"
TOKEN, LOGIN, PASSWORD = "planted-t0ken-f00d", "planted-clerk", "planted-pa55word"
AUTHORITY = "planted-authority"
"""The common name of the certificate that signs the index's."""
PLANTED = (TOKEN, LOGIN, PASSWORD, AUTHORITY, "walled-index-path")


@dataclass
class Company:
    """What has been asked of it."""

    address: str
    folder: Path
    version: str = field(default_factory=lambda: f"1.{secrets.randbelow(10**9)}")
    """Of the one package: another each time, so that no cache has it."""
    index_port: int = 0
    proxy_port: int = 0
    index_hits: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    proxy_hits: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """sha256 of the wheel."""
        return hashlib.sha256(wheel(self.version)).hexdigest()

    @property
    def index_url(self) -> str:
        return f"https://{TOKEN}@{self.address}:{self.index_port}/walled-index-path/simple"

    @property
    def proxy_url(self) -> str:
        return f"http://{LOGIN}:{PASSWORD}@{self.address}:{self.proxy_port}"

    @property
    def planted(self) -> tuple[str, ...]:
        """What must be found nowhere, also as it goes over the wire; a line of the certificate among it."""
        pem = (self.folder / "ca.pem").read_text("ascii").splitlines()
        logins = (f"{TOKEN}:", f"{LOGIN}:{PASSWORD}")
        addresses = (f"{self.address}:{port}" for port in (self.index_port, self.proxy_port))
        encoded = (base64.b64encode(login.encode()).decode() for login in logins)
        return (*PLANTED, *encoded, pem[2], *addresses)


@contextmanager
def company(address: str, folder: Path) -> Iterator[Company]:
    walls = Company(address, folder)
    _certificates(address, folder)
    index = ThreadingHTTPServer((address, 0), _index(walls))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "index.pem", folder / "index.key")
    index.socket = context.wrap_socket(index.socket, server_side=True)
    proxy = ThreadingHTTPServer((address, 0), _proxy(walls))
    walls.index_port, walls.proxy_port = index.server_port, proxy.server_port
    servers = (index, proxy)
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield walls
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def _certificates(address: str, folder: Path) -> None:
    """ca.pem with its key, index.pem signed by it."""
    (folder / "san").write_text(f"subjectAltName=IP:{address}\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    of_ca = ("-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={AUTHORITY}", "-days", "2")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
    for command in (
        ("req", "-x509", *key, *of_ca),
        ("req", *key, "-keyout", "index.key", "-out", "index.csr", "-subj", "/CN=index"),
        ("x509", "-req", "-in", "index.csr", *signed, "-out", "index.pem"),
    ):
        subprocess.run(("openssl", *command), cwd=folder, check=True, capture_output=True)


def wheel(version: str) -> bytes:
    info = f"walled_garden-{version}.dist-info"
    files = {
        "walled_garden.py": "FLOWERS = 3\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: walled-garden\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # no times: one digest
    return made.getvalue()


def _index(walls: Company) -> type[BaseHTTPRequestHandler]:
    content = wheel(walls.version)
    name = f"walled_garden-{walls.version}-py3-none-any.whl"
    page = f'<!DOCTYPE html><html><body><a href="../../{name}#sha256={walls.digest}">{name}</a></body></html>'
    top = "/walled-index-path"
    pages = {
        f"{top}/simple/{PACKAGE}/": ("text/html", page.encode()),
        f"{top}/{name}": ("application/octet-stream", content),
    }
    expected = "Basic " + base64.b64encode(f"{TOKEN}:".encode()).decode()

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                walls.refused.append(self.path)
                self._answer(401, "text/plain", b"who are you?")
            elif self.path in pages:
                walls.index_hits.append(self.path)
                self._answer(200, *pages[self.path])
            else:
                self._answer(404, "text/plain", b"")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status == 401:
                self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    return Index


def _proxy(walls: Company) -> type[BaseHTTPRequestHandler]:
    expected = "Basic " + base64.b64encode(f"{LOGIN}:{PASSWORD}".encode()).decode()

    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            if self.headers.get("Proxy-Authorization") != expected:
                walls.refused.append(f"CONNECT {self.path}")
                self.send_error(407)
                return
            walls.proxy_hits.append(self.path)
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=30) as there:
                self.send_response(200)
                self.end_headers()
                _relay(self.connection, there)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None: ...

    return Proxy


def _relay(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while True:
            for source in select.select([one, other], [], [], 30)[0] or (None,):
                content = source.recv(65536) if source is not None else b""
                if not content:
                    return
                (other if source is one else one).sendall(content)
