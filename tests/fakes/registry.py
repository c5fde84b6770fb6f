"""A registry on loopback that hands out images which `docker save` wrote, and can be told to lie."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Registry:
    """Blobs and manifests by digest, under every repository name."""

    address: str
    folder: Path
    blobs: dict[str, Path] = field(default_factory=dict)
    lies: dict[str, bytes] = field(default_factory=dict)
    """Digest -> other bytes that are answered in the place of its own."""
    status: int = 200
    """Other than 200: the answer to everything."""
    requests: list[str] = field(default_factory=list)

    def add(self, image: str) -> str:
        """Take a local image in; returns the digest of its manifest."""
        saved = ["docker", "save", image]
        with subprocess.Popen(saved, stdout=subprocess.PIPE) as saving:
            subprocess.run(["tar", "-x", "-C", str(self.folder)], stdin=saving.stdout, check=True)
        for file in (self.folder / "blobs" / "sha256").iterdir():
            self.blobs[f"sha256:{file.name}"] = file
        return str(json.loads((self.folder / "index.json").read_bytes())["manifests"][0]["digest"])

    def put(self, content: bytes) -> str:
        name = hashlib.sha256(content).hexdigest()
        self.blobs[f"sha256:{name}"] = self.folder / name
        (self.folder / name).write_bytes(content)
        return f"sha256:{name}"

    def _json(self, digest: str) -> Any:
        return json.loads(self.blobs[digest].read_bytes())

    def with_layer(self, manifest: str, text: str) -> tuple[str, str]:
        """The same image with one more layer, which no engine knows; its manifest's digest and its id."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as archive:
            member = tarfile.TarInfo("layer.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        document = self._json(manifest)
        config = self._json(document["config"]["digest"])
        digest = self.put(layer.getvalue())
        config["rootfs"]["diff_ids"].append(digest)
        config["history"].append({"created_by": "a test"})
        image = self.put(json.dumps(config).encode())
        document["config"] |= {"digest": image, "size": self.blobs[image].stat().st_size}
        kind = "application/vnd.oci.image.layer.v1.tar"
        document["layers"].append({"mediaType": kind, "digest": digest, "size": len(layer.getvalue())})
        return self.put(json.dumps(document).encode()), image

    def layers(self, manifest: str) -> list[str]:
        return [layer["digest"] for layer in self._json(manifest)["layers"]]

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, media type, body."""
        self.requests.append(path)
        if self.status != 200:
            code = {401: "UNAUTHORIZED", 403: "DENIED"}.get(self.status, "UNKNOWN")
            error = {"code": code, "message": code.lower(), "detail": None}
            return self.status, "application/json", json.dumps({"errors": [error]}).encode()
        if path == "/v2/":
            return 200, "application/json", b"{}"
        digest, is_manifest = path.rpartition("/")[2], "/manifests/" in path
        found = self.lies.get(digest)
        if found is None and digest in self.blobs:
            found = self.blobs[digest].read_bytes()
        if found is None:
            code = "MANIFEST_UNKNOWN" if is_manifest else "BLOB_UNKNOWN"
            error = {"code": code, "message": code.lower().replace("_", " "), "detail": digest}
            return 404, "application/json", json.dumps({"errors": [error]}).encode()
        kind = "application/vnd.oci.image.manifest.v1+json" if is_manifest else "application/octet-stream"
        return 200, kind, found


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """`folder` is where it keeps what it serves."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, kind, body = made.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if "/manifests/" in self.path and status == 200:
                self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Registry(f"127.0.0.1:{server.server_port}", folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
