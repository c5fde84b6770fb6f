"""A registry for tests: Debian's docker-registry on a free port, of loopback if nothing else is said."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.certificates import Certificate

from gymctl.artefacts.registry import Registry

USER, PASSWORD = "reader", "correct-horse-7"
HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuBYe9o9CGi/BHa4OAlLpruMUDfwV3Rby\n"
START_SECONDS = 60.0


@dataclass(frozen=True)
class LocalRegistry:
    """One that runs."""

    host: str
    storage: Path

    def blob_file(self, digest: str) -> Path:
        value = digest.removeprefix("sha256:")
        return self.storage / "docker/registry/v2/blobs/sha256" / value[:2] / value / "data"

    def client(self, *, plain_http: bool = False) -> Registry:
        return Registry(self.host, plain_http=plain_http)


@contextlib.contextmanager
def serve(
    folder: Path,
    *,
    htpasswd: str | None = None,
    address: str = "127.0.0.1",
    certificate: Certificate | None = None,
) -> Iterator[LocalRegistry]:
    """A registry until the end of the block; with a certificate it speaks TLS."""
    with socket.socket() as found:
        found.bind((address, 0))
        host = f"{address}:{found.getsockname()[1]}"
    config: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}, "delete": {"enabled": True}},
        "http": {"addr": host, "secret": "of these tests"},
    }
    if certificate is not None:
        config["http"]["tls"] = {"certificate": str(certificate.file), "key": str(certificate.key)}
    if htpasswd is not None:
        (folder / "htpasswd").write_text(htpasswd)
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _wait(f"http{'s' if certificate else ''}://{host}/v2/", process, folder / "log")
            yield LocalRegistry(host, folder / "storage")
        finally:
            process.terminate()
            process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    anybody = ssl._create_unverified_context()
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2, context=anybody).close()
            return
        except urllib.error.HTTPError:
            return  # it asks who we are
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"docker-registry does not answer: {log.read_text()[-2000:]}")
