"""A small client of registries (OCI distribution spec 1.1): manifests, blobs, tags, referrers.

What is read is hashed while it is read, so nothing is returned under a digest that it does not have. Images
themselves go by `docker push` and `docker pull`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from gymctl import __version__
from gymctl.artefacts import credentials, tls
from gymctl.artefacts.answers import at_most, json_object, list_in, next_page, place_named
from gymctl.artefacts.descriptor import (
    EMPTY,
    MANIFESTS,
    OCI_EMPTY,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    canonical,
    is_digest,
    manifest_bytes,
    short,
)
from gymctl.artefacts.reference import is_loopback
from gymctl.artefacts.unreachable import Unreachable, unreachable
from gymctl.contract import retry_after
from gymctl.errors import EngineError, GymctlError, IntegrityError, PrerequisiteError

CONNECT_SECONDS = 20.0
SILENCE_SECONDS = 120.0
TRIES = 3
LONGEST_WAIT = 60.0
"""Seconds; who asks for more is not waited for."""
MOST_PAGES = 1000
MOST_CHALLENGES = 2
"""Of one request: a token that has run out, and a registry that asks twice."""
_CHUNK = 1 << 20
_BUSY = (429, 500, 502, 503, 504)


class Registry:
    """One registry host. An async context manager; safe for several tasks at once."""

    def __init__(self, host: str, *, plain_http: bool = False) -> None:
        self.host = host
        self._is_told_plain = plain_http
        is_plain = plain_http or is_loopback(host)
        name = "registry-1.docker.io" if host == "docker.io" else host
        self._base = f"{'http' if is_plain else 'https'}://{name}"
        self._tokens: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None
        proxies = (
            {} if is_loopback(host) or urllib.request.proxy_bypass(name) else urllib.request.getproxies()
        )
        self._proxy = proxies.get(urlsplit(self._base).scheme)
        self._may_speak_tls = is_plain

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls.context(self.host)),
            timeout=aiohttp.ClientTimeout(
                sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS, total=None
            ),
            headers={"User-Agent": f"gymctl/{__version__}", "Accept-Encoding": "identity"},
            # Blobs are what they are: a layer that is gzip must not be unpacked on the way.
            auto_decompress=False,
            # A signed address holds only as it was written.
            requote_redirect_url=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def greet(self) -> None:
        """Ask whether the registry answers and lets us in at all. Raises PrerequisiteError."""
        async with self._request("GET", "", "") as answer:
            await self._check(answer, "its front door")

    async def manifest(self, path: str, wanted: str) -> Manifest | None:
        """By tag or digest; None when there is none. By digest, IntegrityError: it is another one."""
        headers = {"Accept": ", ".join(MANIFESTS)}
        async with self._request("GET", path, f"manifests/{wanted}", headers=headers) as answer:
            if answer.status == 404:
                return None
            await self._check(answer, f"{path}: manifest")
            data = await at_most(answer)
            media_type = answer.headers.get("Content-Type", "").partition(";")[0]
        if data is None:
            raise IntegrityError("a manifest is larger than 4 MB", where=f"{self.host}/{path}")
        found = Manifest(data, media_type)
        if is_digest(wanted) and found.digest != wanted:
            raise self._other(path, "manifest", wanted, found.digest)
        return found

    async def put_manifest(self, path: str, wanted: str, data: bytes, media_type: str = OCI_MANIFEST) -> bool:
        """Store under a tag or its digest. Returns whether the registry keeps referrers of its subject."""
        for attempt in range(1, TRIES + 1):
            async with self._request(
                "PUT", path, f"manifests/{wanted}", headers={"Content-Type": media_type}, data=data
            ) as answer:
                # A registry that gets the same blobs from another push may not know them for a moment.
                if answer.status != 400 or attempt == TRIES:
                    await self._check(answer, f"{path}: manifest")
                    return "OCI-Subject" in answer.headers
            await asyncio.sleep(attempt)
        raise AssertionError("the last one returns")

    async def has_blob(self, path: str, digest: str) -> int | None:
        """The size that the registry says; None when it has no such blob."""
        async with self._request("HEAD", path, f"blobs/{digest}") as answer:
            if answer.status == 404:
                return None
            await self._check(answer, f"{path}: {short(digest)}")
            return int(answer.headers.get("Content-Length", -1))

    async def blob(self, path: str, blob: Descriptor) -> AsyncIterator[bytes]:
        """The bytes, piece by piece. IntegrityError, at the end or before: missing, longer, another digest.

        Until it has ended nothing that it gave may be trusted.
        """
        total, size = hashlib.sha256(), 0
        for attempt in range(1, TRIES + 1):
            try:
                async with contextlib.aclosing(self._rest_of(path, blob, size)) as chunks:
                    async for chunk in chunks:
                        total.update(chunk)
                        size += len(chunk)
                        if size > blob.size:
                            break
                        yield chunk
                break
            except Unreachable:
                if attempt == TRIES:
                    raise
            await asyncio.sleep(attempt)
        if size != blob.size or f"sha256:{total.hexdigest()}" != blob.digest:
            found = f"sha256:{total.hexdigest()}" if size <= blob.size else f"more than {blob.size} bytes"
            raise self._other(
                path, blob.annotations.get("org.opencontainers.image.title", "blob"), blob.digest, found
            )

    async def _rest_of(self, path: str, blob: Descriptor, start: int) -> AsyncGenerator[bytes]:
        """The bytes of a blob after the first `start`, unchecked. Raises Unreachable when they break off."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        async with self._request("GET", path, f"blobs/{blob.digest}", headers=headers) as answer:
            if answer.status == 404:
                what = f"the registry has no blob {short(blob.digest)}"
                raise IntegrityError(what, where=f"{self.host}/{path}", hint="push it again")
            await self._check(answer, f"{path}: {short(blob.digest)}")
            known = 0 if answer.status == 206 else start  # who knows no ranges sends all of it
            async for chunk in answer.content.iter_chunked(_CHUNK):
                if rest := chunk[known:]:
                    yield rest
                known = max(0, known - len(chunk))

    async def read(self, path: str, blob: Descriptor) -> bytes:
        """A blob whole; for small ones."""
        return b"".join([chunk async for chunk in self.blob(path, blob)])

    async def put_blob(self, path: str, blob: Descriptor, chunks: Iterable[bytes]) -> bool:
        """Store a blob where it is missing. Returns whether it was sent.

        chunks: what is no iterator, and so can be read twice, is sent again to a registry that was busy or
        ended the connection.
        """
        if await self.has_blob(path, blob.digest) is not None:
            return False
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        tries = 1 if iter(chunks) is chunks else TRIES
        for attempt in range(1, tries + 1):
            pause = float(attempt)
            try:
                place = await self._upload(path)
                place += f"{'&' if '?' in place else '?'}digest={blob.digest}"
                async with self._request(
                    "PUT", path, place, headers=headers, data=_sent(iter(chunks)), is_repeatable=False
                ) as answer:
                    pause = _pause(answer, attempt)
                    # 401: the login ran out since; 404: the upload is forgotten. Both begin anew.
                    is_over = attempt == tries or answer.status not in (*_BUSY, 401, 404)
                    if is_over or pause > LONGEST_WAIT:
                        await self._check(answer, f"{path}: {short(blob.digest)}")
                        return True
            except Unreachable:
                if attempt == tries:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("the last one returns")

    async def _upload(self, path: str) -> str:
        """Where a blob is to be sent; nobody but the registry knows what the address means."""
        async with self._request("POST", path, "blobs/uploads/") as answer:
            await self._check(answer, f"{path}: upload")
            place = place_named(answer)
        if place is None:
            raise EngineError(f"the registry {self.host} names no place for an upload", where=path)
        if self._base.startswith("https:") and not place.startswith("https:"):
            what = f"the registry {self.host} wants an upload without TLS"
            hint = "its owner has to tell it its own address: behind a proxy, `X-Forwarded-Proto`"
            raise EngineError(what, where=path, hint=hint)
        return place

    async def tags(self, path: str) -> list[str]:
        """All tags of a repository, sorted; none when it is not there."""
        return sorted(map(str, await self._listed(path, "tags/list", "tags", (404,)) or ()))

    async def referrers(self, path: str, digest: str, artifact_type: str | None = None) -> list[Descriptor]:
        """What is attached to a manifest: by the registry's API, or where it has none, by tag."""
        found = await self._listed(path, f"referrers/{digest}", "manifests", (400, 404, 405))
        if found is None:
            index = await self.manifest(path, fallback_tag(digest))
            found = [] if index is None else list_in(index.parsed(f"{self.host}/{path}"), "manifests")
        every = [Descriptor.read(one, f"{self.host}/{path}") for one in found]
        return [one for one in every if artifact_type in (None, one.artifact_type)]

    async def _listed(self, path: str, rest: str, key: str, none: tuple[int, ...]) -> list[Any] | None:
        """A list that may come in pages, each of which names the next one (`Link`, RFC 8288). None when the
        first answer's status is one of `none`."""
        found: list[Any] = []
        for page in range(MOST_PAGES):
            async with self._request("GET", path, rest) as answer:
                if page == 0 and answer.status in none:
                    return None
                await self._check(answer, f"{path}: {key}")
                found += list_in(await self._json(answer), key)
                following = next_page(answer)
            if following is None:
                return found
            rest = following
        raise EngineError(f"the registry {self.host} gives no end of {key}", where=path)

    async def attach(
        self,
        path: str,
        subject: Descriptor,
        artifact_type: str,
        data: bytes,
        annotations: Mapping[str, str] | None = None,
    ) -> Descriptor:
        """Attach a file to a manifest (an SBOM to an image), once. Returns the artefact's descriptor."""
        layer = Descriptor.of(artifact_type, data, annotations=annotations or {})
        config = Descriptor.of(OCI_EMPTY, EMPTY)
        bare = Descriptor(subject.media_type, subject.digest, subject.size)
        manifest = manifest_bytes(config, [layer], artifact_type=artifact_type, subject=bare)
        made = Descriptor.of(OCI_MANIFEST, manifest, artifact_type=artifact_type)
        known = await self.referrers(path, subject.digest)
        if any(one.digest == made.digest for one in known):
            return made
        await self.put_blob(path, config, [EMPTY])
        await self.put_blob(path, layer, [data])
        if not await self.put_manifest(path, made.digest, manifest):
            entries = [one.json() for one in sorted([*known, made], key=lambda one: one.digest)]
            index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
            await self.put_manifest(path, fallback_tag(subject.digest), canonical(index), OCI_INDEX)
        return made

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, rest: str, *, is_repeatable: bool = True, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request below the repository `path`; `rest` may be a whole URL, of an upload. A challenge is
        answered once for each scope, a busy registry asked again."""
        assert self._session is not None, "enter it first"
        actions = "pull" if method in ("GET", "HEAD") else "pull,push"
        scope = f"repository:{path}:{actions}" if path else ""
        headers = dict(options.pop("headers", {}))
        # What is sent goes to nobody else; blobs lie elsewhere, and aiohttp takes the login off on the way.
        options["allow_redirects"] = method in ("GET", "HEAD")
        attempt, challenges = 1, 0
        while True:
            below = "/".join(filter(None, (path, rest)))
            url = URL(rest if "://" in rest else f"{self._base}/v2/{below}", encoded=True)
            token = self._tokens.get(scope) if self._is_own(url) else None
            sent = {**headers, **({"Authorization": token} if token else {})}
            try:
                async with self._session.request(
                    method, url, headers=sent, proxy=self._proxy, **options
                ) as answer:
                    pause = None
                    if await self._turns_to_tls(answer):
                        pause = 0.0
                    elif answer.status == 401 and is_repeatable and challenges < MOST_CHALLENGES:
                        challenges += 1
                        if self._is_own(answer.url) and await self._answered(answer, scope, token):
                            pause = 0.0
                    elif answer.status in _BUSY and is_repeatable and attempt < TRIES:
                        pause = _pause(answer, attempt)
                        attempt += 1
                    if pause is None or pause > LONGEST_WAIT:
                        yield answer
                        return
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                is_tls = self._base.startswith("https:")
                raise unreachable(self.host, error, is_tls=is_tls) from None
            await asyncio.sleep(pause)

    def _is_own(self, url: URL) -> bool:
        base = URL(self._base)
        return (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port)

    async def _turns_to_tls(self, answer: aiohttp.ClientResponse) -> bool:
        """Whether an answer says that this is TLS after all: then all goes there. Raises PrerequisiteError
        where the user said that it is not."""
        if not self._may_speak_tls or answer.url.scheme != "http":
            return False
        if answer.status != 400:
            self._may_speak_tls = False
            return False
        if b"HTTPS" not in (await at_most(answer) or b""):  # as Go's servers and nginx say it
            return False
        if self._is_told_plain:
            raise PrerequisiteError(f"the registry {self.host} speaks TLS", hint="leave --plain-http out")
        self._base = f"https://{self.host}"
        return True

    async def _answered(self, answer: aiohttp.ClientResponse, scope: str, token: str | None) -> bool:
        """Get what answers the registry's challenge; False when it is what was said already (`token`)."""
        assert self._session is not None
        challenge = credentials.Challenge.read(answer.headers.getall("WWW-Authenticate", []))
        options = {"proxy": self._proxy}
        header = await credentials.authorization(self._session, challenge, self.host, scope, **options)
        if header is None or header == token:
            return False
        self._tokens[scope] = header
        return True

    async def _check(self, answer: aiohttp.ClientResponse, what: str) -> None:
        if answer.status < 300:
            return
        if answer.status in (401, 403):
            raise PrerequisiteError(
                f"the registry {self.host} does not let you ({answer.status}): {what}",
                hint=f"docker login {self.host}",
            )
        said = ""
        with contextlib.suppress(GymctlError, aiohttp.ClientError):
            errors = [one for one in list_in(await self._json(answer), "errors") if isinstance(one, dict)]
            said = "; ".join(f"{one.get('code')}: {one.get('message')}"[:300] for one in errors[:3])
        wait = retry_after.seconds(answer.headers.get(retry_after.RETRY_AFTER))
        hint = f"it wants to be asked again in {wait:,.0f} s" if wait else None
        raise EngineError(
            f"the registry {self.host} answers {answer.status} for {what}",
            details=[said] if said else (),
            hint=hint,
        )

    async def _json(self, answer: aiohttp.ClientResponse) -> dict[str, Any]:
        """Raises PrerequisiteError: what answers is no registry, as a portal or a proxy that has a page."""
        found = json_object(await at_most(answer))
        if found is None:
            raise PrerequisiteError(
                f"{self.host} does not answer as a registry does",
                hint="check the name, the port and this machine's proxy: what is there is something else",
            )
        return found

    def _other(self, path: str, what: str, expected: str, found: str) -> IntegrityError:
        return IntegrityError(
            f"{what} is not what its digest says: expected {short(expected)}, found {short(found)}",
            where=f"{self.host}/{path}",
            hint="it was altered or damaged in the registry: push it again, or use another registry",
        )


def fallback_tag(digest: str) -> str:
    """Where referrers stand in a registry without an API for them (OCI 1.1: referrers tag schema)."""
    return digest.replace(":", "-")


def _pause(answer: aiohttp.ClientResponse, attempt: int) -> float:
    """Seconds until a busy registry is asked again: as it says, or a little longer each time."""
    return retry_after.seconds(answer.headers.get(retry_after.RETRY_AFTER)) or float(attempt)


async def _sent(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read in a thread: a file may lie on a slow disk."""
    while (chunk := await asyncio.to_thread(next, chunks, b"")) != b"":
        yield chunk
