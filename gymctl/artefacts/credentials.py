"""How a registry is told who asks: Docker's own credential store, and the token protocol of registries.

Protocol: distribution.github.io/distribution/spec/auth/token. Names and passwords go to the registry's own
host and to the place of tokens that it names, over TLS or on this machine, and into no message.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

import aiohttp

from gymctl.artefacts.answers import at_most, json_object
from gymctl.artefacts.reference import is_loopback
from gymctl.errors import PrerequisiteError

_WORDS = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|([A-Za-z][\w-]*)')
"""A parameter, quoted or not, or the name of the scheme that those after it belong to."""
_TOKEN = re.compile(r"[!-~]+")
_SCHEMES = ("bearer", "basic")
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True, slots=True)
class Login:
    """A name and password, or a token that stands for both. Never shown."""

    username: str = field(repr=False)
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        text = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(text).decode()}"


@dataclass(frozen=True, slots=True)
class Challenge:
    """`WWW-Authenticate` of an answer 401: of several the one that asks for a token, or for a password."""

    scheme: str
    parts: dict[str, str]

    @classmethod
    def read(cls, headers: Iterable[str]) -> Challenge:
        found: list[Challenge] = []
        for name, quoted, plain, scheme in _WORDS.findall(", ".join(headers)):
            if scheme:
                found.append(cls(scheme.lower(), {}))
            elif found:
                found[-1].parts[name.lower()] = plain or re.sub(r"\\(.)", r"\1", quoted)
        known = sorted(
            (one for one in found if one.scheme in _SCHEMES), key=lambda one: _SCHEMES.index(one.scheme)
        )
        return known[0] if known else cls("", {})


def stored_login(host: str) -> Login | None:
    """What `docker login HOST` has stored, in Docker's file or with its helper program. Blocking.

    Raises PrerequisiteError when the helper does not work.
    """
    from docker import auth
    from docker.errors import DockerException

    name = "docker.io" if host in _DOCKER_HUB else host
    try:
        found = auth.load_config().resolve_authconfig(name)
    except (DockerException, OSError, ValueError):
        # The helper's own words may hold what it was asked for.
        raise PrerequisiteError(
            "Docker's credential store does not answer",
            where=host,
            hint=f"`docker login {host}` says why; Docker's config.json names it (credsStore, credHelpers)",
        ) from None
    entry = {key.lower(): str(value) for key, value in (found or {}).items() if value}
    if "identitytoken" in entry:
        return Login("", "", entry["identitytoken"])
    if "username" in entry and "password" in entry:
        return Login(entry["username"], entry["password"])
    return None


async def authorization(
    session: aiohttp.ClientSession, challenge: Challenge, host: str, scope: str, **options: Any
) -> str | None:
    """The `Authorization` header that answers a challenge; None when there is nothing to answer with."""
    login = await asyncio.to_thread(stored_login, host)
    if challenge.scheme == "basic":
        return None if login is None else login.basic
    if challenge.scheme != "bearer" or "realm" not in challenge.parts:
        return None
    realm = challenge.parts["realm"]
    named = {"scope": challenge.parts.get("scope") or scope, "service": challenge.parts.get("service")}
    asked = {key: value for key, value in named.items() if value}
    place = _place(realm)
    if place is None:
        return None
    # What stands before an @ is no host.
    if place.scheme != "https" and not is_loopback(place.netloc.rpartition("@")[2]) and place.netloc != host:
        login = None  # a name and password never travel in clear to somebody else
    if login is not None and login.identity_token:
        form = {**asked, "grant_type": "refresh_token", "refresh_token": login.identity_token}
        form["client_id"] = "gymctl"
        request = session.post(realm, data=form, allow_redirects=False, **options)
    else:
        headers = {} if login is None else {"Authorization": login.basic}
        request = session.get(realm, params=asked, headers=headers, allow_redirects=False, **options)
    async with request as answer:
        if answer.status != 200:
            return None
        body = json_object(await at_most(answer)) or {}
    token = body.get("token") or body.get("access_token")
    return f"Bearer {token}" if isinstance(token, str) and _TOKEN.fullmatch(token) else None


def _place(realm: str) -> SplitResult | None:
    try:
        return urlsplit(realm)
    except ValueError:
        return None
