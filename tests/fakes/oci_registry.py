"""A registry as the OCI distribution spec 1.1 has it: an API for referrers, tokens, storage elsewhere.

Debian's docker-registry is of version 1.0 of the spec. What the large registries do besides is a field here.
It runs in a thread of its own, so that programs can be run against it, and has two names of this machine: it
is `127.0.0.1`, and its storage `localhost`, another host to every client.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from aiohttp import web

T = TypeVar("T")
INDEX = "application/vnd.oci.image.index.v1+json"
_ROUTES = (
    ("manifests", re.compile(r"/v2/(?P<name>.+)/manifests/(?P<rest>[^/]+)")),
    ("upload", re.compile(r"/v2/(?P<name>.+)/blobs/uploads/(?P<rest>[^/]*)")),
    ("blobs", re.compile(r"/v2/(?P<name>.+)/blobs/(?P<rest>[^/]+)")),
    ("referrers", re.compile(r"/v2/(?P<name>.+)/referrers/(?P<rest>[^/]+)")),
    ("tags", re.compile(r"/v2/(?P<name>.+)/tags/(?P<rest>list)")),
)


@dataclass(frozen=True)
class Asked:
    """One request: `GET /v2/a/tags/list?n=2`, its Authorization, and the host that it was sent to."""

    what: str
    authorization: str
    host: str


@dataclass
class OciRegistry:
    """What it holds, and how it behaves."""

    port: int = 0
    login: str | None = None
    """Base64 of `user:password`: who has it gets tokens, and nobody gets in without one."""
    uses: int = 0
    """For how many requests a token is good; 0: for all."""
    page: int = 0
    """Entries of one page of a list; 0: all at once."""
    location: Literal["relative", "absolute", "query"] = "relative"
    """How the place of an upload is written; `query`: with a state that must come back as it is."""
    is_storing_elsewhere: bool = False
    """Blobs are answered with a redirect to another host, which wants no token."""
    challenge: str = 'Bearer realm="{realm}",service="registry.example",scope="{scope}"'
    refusals: dict[str, list[web.Response]] = field(default_factory=dict[str, "list[web.Response]"])
    """By the beginning of `GET /v2/…`: what is answered to the next such requests, in turn."""
    cuts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The same, after how many bytes of a blob the connection ends."""
    has_ranges: bool = True
    """Whether it sends a part of a blob that is asked for alone."""
    asked: list[Asked] = field(default_factory=list[Asked])
    blobs: dict[str, dict[str, bytes]] = field(
        default_factory=lambda: defaultdict[str, "dict[str, bytes]"](dict)
    )
    """By repository and digest."""
    manifests: dict[str, dict[str, tuple[bytes, str]]] = field(
        default_factory=lambda: defaultdict[str, "dict[str, tuple[bytes, str]]"](dict)
    )
    """By repository and digest: bytes and media type."""
    tags: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict[str, "dict[str, str]"](dict))
    _uploads: dict[str, bytearray] = field(default_factory=dict[str, bytearray])
    _tokens: dict[str, tuple[int, tuple[str, ...]]] = field(
        default_factory=dict[str, "tuple[int, tuple[str, ...]]"]
    )

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, beginning: str) -> list[Asked]:
        return [one for one in self.asked if one.what.startswith(beginning)]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        what = f"{request.method} {request.raw_path}"
        self.asked.append(Asked(what, request.headers.get("Authorization", ""), request.host))
        if request.host.startswith("localhost"):
            return self._stored(request)
        for beginning, answers in self.refusals.items():
            if what.startswith(beginning) and answers:
                return answers.pop(0)
        for beginning, cuts in self.cuts.items():
            if what.startswith(beginning) and cuts:
                return await self._cut(request, cuts.pop(0))
        if request.path == "/token":
            return self._token(request)
        kind, name, rest = _route(request.path)
        if refused := self._refused(request, name):
            return refused
        if kind == "front":
            return web.json_response({})
        if kind == "upload":
            return await self._upload(request, name, rest)
        if kind == "manifests":
            return await self._manifest(request, name, rest)
        if kind == "blobs":
            return self._blob(request, name, rest)
        if kind == "referrers":
            return self._referrers(request, name, rest)
        if kind == "tags":
            return self._tags(request, name)
        return _error(404, "UNSUPPORTED")

    async def _cut(self, request: web.Request, after: int) -> web.StreamResponse:
        """The connection ends after so many bytes of what is sent or read."""
        transport = request.transport
        assert transport is not None
        if request.method == "GET":
            answer = self._blob(request, *_route(request.path)[1:])
            assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
            head = f"HTTP/1.1 {answer.status} Cut\r\nContent-Length: {len(answer.body)}\r\n\r\n"
            transport.write(head.encode() + answer.body[:after])
            transport.close()
        else:
            if after:
                await request.content.readexactly(after)
            transport.abort()
        return web.Response()

    def _token(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Basic {self.login}":
            return _error(401, "UNAUTHORIZED")
        token = uuid.uuid4().hex
        self._tokens[token] = (self.uses, tuple(request.query.getall("scope", [])))
        return web.json_response({"token": token, "access_token": token, "expires_in": 60})

    def _refused(self, request: web.Request, name: str) -> web.StreamResponse | None:
        """401 where no token is good for what is asked."""
        if self.login is None:
            return None
        needed = {"pull"} if request.method in ("GET", "HEAD") else {"pull", "push"}
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        left, scopes = self._tokens.get(given, (-1, ()))
        allowed = [scope.rpartition(":") for scope in scopes]
        is_good = not name or any(
            repository == f"repository:{name}" and needed <= set(actions.split(","))
            for repository, _, actions in allowed
        )
        if left >= 0 and is_good:
            if left == 1:
                del self._tokens[given]
            elif left:
                self._tokens[given] = (left - 1, scopes)
            return None
        scope = f"repository:{name}:{','.join(sorted(needed))}" if name else ""
        said = self.challenge.format(realm=f"http://{self.host}/token", scope=scope)
        return _error(401, "UNAUTHORIZED", {"WWW-Authenticate": said})

    def _stored(self, request: web.Request) -> web.StreamResponse:
        """Storage that others run: a login that it is shown is more than it can read."""
        if request.headers.get("Authorization"):
            return web.Response(status=400, text="Only one auth mechanism allowed")
        found = self.blobs[request.query["from"]].get(request.path.rpartition("/")[2])
        return web.Response(body=found) if found is not None else web.Response(status=404)

    def _blob(self, request: web.Request, name: str, digest: str) -> web.StreamResponse:
        found = self.blobs[name].get(digest)
        if found is None:
            return _error(404, "BLOB_UNKNOWN")
        if self.is_storing_elsewhere:
            place = f"http://localhost:{self.port}/storage/{digest}?from={name}&sig=a%2Bb%2F"
            return web.Response(status=307, headers={"Location": place})
        asked = request.headers.get("Range", "") if self.has_ranges else ""
        start = int(asked.removeprefix("bytes=").removesuffix("-") or 0)
        return web.Response(
            status=206 if asked else 200,
            body=found[start:],
            headers={"Docker-Content-Digest": digest},
            content_type="application/octet-stream",
        )

    async def _upload(self, request: web.Request, name: str, session: str) -> web.StreamResponse:
        data = await request.read()
        if request.method == "POST":
            mounted = request.query.get("mount", "")
            source = self.blobs[request.query.get("from", "")]
            if mounted in source:
                self.blobs[name][mounted] = source[mounted]
                return web.Response(status=201, headers={"Location": f"/v2/{name}/blobs/{mounted}"})
            session = uuid.uuid4().hex
            self._uploads[session] = bytearray()
            return self._at(name, session)
        if session not in self._uploads:
            return _error(404, "BLOB_UPLOAD_UNKNOWN")
        if self.location == "query" and "_state=a%2Bb%3D" not in request.raw_path:
            return _error(400, "BLOB_UPLOAD_INVALID")
        held = self._uploads[session]
        held += data
        if request.method == "PATCH":
            return self._at(name, session)
        del self._uploads[session]
        digest = f"sha256:{hashlib.sha256(held).hexdigest()}"
        if request.query.get("digest") != digest:
            return _error(400, "DIGEST_INVALID")
        self.blobs[name][digest] = bytes(held)
        place = {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest}
        return web.Response(status=201, headers=place)

    def _at(self, name: str, session: str) -> web.StreamResponse:
        place = f"/v2/{name}/blobs/uploads/{session}"
        if self.location == "absolute":
            place = f"http://{self.host}{place}"
        if self.location == "query":
            place += "?_state=a%2Bb%3D"
        end = max(0, len(self._uploads[session]) - 1)
        headers = {"Location": place, "Range": f"0-{end}", "Docker-Upload-UUID": session}
        return web.Response(status=202, headers=headers)

    async def _manifest(self, request: web.Request, name: str, wanted: str) -> web.StreamResponse:
        if request.method == "PUT":
            return self._put_manifest(name, wanted, await request.read(), request.content_type)
        digest = self.tags[name].get(wanted, wanted)
        found = self.manifests[name].get(digest)
        if found is None:
            return _error(404, "MANIFEST_UNKNOWN")
        data, media_type = found
        return web.Response(body=data, content_type=media_type, headers={"Docker-Content-Digest": digest})

    def _put_manifest(self, name: str, wanted: str, data: bytes, media_type: str) -> web.StreamResponse:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if wanted.startswith("sha256:") and wanted != digest:
            return _error(400, "DIGEST_INVALID")
        found = json.loads(data)
        parts = [one for one in (found.get("config"), *found.get("layers", ())) if one]
        if any(one["digest"] not in self.blobs[name] for one in parts):
            return _error(400, "MANIFEST_BLOB_UNKNOWN")
        self.manifests[name][digest] = (data, media_type)
        if wanted != digest:
            self.tags[name][wanted] = digest
        headers = {"Location": f"/v2/{name}/manifests/{digest}", "Docker-Content-Digest": digest}
        if "subject" in found:
            headers["OCI-Subject"] = found["subject"]["digest"]
        return web.Response(status=201, headers=headers)

    def _referrers(self, request: web.Request, name: str, digest: str) -> web.StreamResponse:
        found: list[dict[str, Any]] = []
        for one, (data, media_type) in sorted(self.manifests[name].items()):
            manifest = json.loads(data)
            if manifest.get("subject", {}).get("digest") != digest:
                continue
            kind = manifest.get("artifactType") or manifest["config"]["mediaType"]
            entry = {"mediaType": media_type, "digest": one, "size": len(data), "artifactType": kind}
            found.append({**entry, "annotations": manifest.get("annotations", {})})
        headers: dict[str, str] = {}
        if kind := request.query.get("artifactType"):
            found = [one for one in found if one["artifactType"] == kind]
            headers["OCI-Filters-Applied"] = "artifactType"
        found, more = self._page(request, found, [one["digest"] for one in found])
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": found}).encode()
        return web.Response(body=body, content_type=INDEX, headers={**headers, **more})

    def _tags(self, request: web.Request, name: str) -> web.StreamResponse:
        if name not in self.manifests:
            return _error(404, "NAME_UNKNOWN")
        names = sorted(self.tags[name])
        found, more = self._page(request, names, names)
        return web.json_response({"name": name, "tags": found}, headers=more)

    def _page(self, request: web.Request, every: list[T], keys: list[str]) -> tuple[list[T], dict[str, str]]:
        """The entries after `last`, and where the next ones are."""
        last = request.query.get("last", "")
        start = next((at for at, key in enumerate(keys) if key > last), len(keys))
        end = start + self.page if self.page else len(keys)
        if end >= len(keys):
            return every[start:], {}
        return every[start:end], {"Link": f'<{request.path}?last={keys[end - 1]}>; rel="next"'}


def _route(path: str) -> tuple[str, str, str]:
    for kind, pattern in _ROUTES:
        if match := pattern.fullmatch(path):
            return kind, match["name"], match["rest"]
    return ("front" if path == "/v2/" else "none"), "", ""


def _error(status: int, code: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"errors": [{"code": code, "message": code}]}, status=status, headers=headers)


@contextlib.contextmanager
def oci_registry() -> Iterator[OciRegistry]:
    """One that runs until the end of the block."""
    made, loop, is_up = OciRegistry(), asyncio.new_event_loop(), threading.Event()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{rest:.*}", made.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.port = runner.addresses[0][1]
        return runner

    def run() -> None:
        runner = loop.run_until_complete(start())
        is_up.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    is_up.wait()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
