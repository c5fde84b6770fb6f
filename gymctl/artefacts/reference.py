"""How a thing in a registry is named: `HOST[:PORT]/PATH/name[:tag][@sha256:…]`. Light: command lines ask."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from gymctl.errors import UsageError

_HOST = r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]{1,5})?"
_STEP = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"sha256:[0-9a-f]{64}"
_REFERENCE = re.compile(
    rf"(?P<host>{_HOST})/(?P<path>{_STEP}(?:/{_STEP})*)(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?"
)
_PLACE = re.compile(rf"(?P<host>{_HOST})(?:/(?P<path>{_STEP}(?:/{_STEP})*))?")
_LONGEST = 255
FORM = "HOST[:PORT]/PATH/NAME[:TAG][@sha256:DIGEST]"


@dataclass(frozen=True, slots=True)
class Reference:
    """A thing in a registry, by tag, by digest or both."""

    host: str
    """With its port: `localhost:5000`."""
    path: str
    """The repository below the host: `bench/weather`."""
    tag: str | None = None
    digest: str | None = None

    @property
    def repository(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def wanted(self) -> str:
        """What the registry is asked for: the digest pins."""
        return self.digest or self.tag or "latest"

    def at(self, digest: str) -> Reference:
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def parse(text: str) -> Reference:
    """Raises UsageError, which says the form."""
    _refuse_login(text)
    match = _REFERENCE.fullmatch(text)
    if (
        match is None
        or not is_host(match["host"])
        or not _has_port(match["host"])
        or len(match["path"]) > _LONGEST
    ):
        raise UsageError(f"`{text}` is no reference to a registry", hint=f"{FORM}; all of PATH in lower case")
    return Reference(match["host"], match["path"], match["tag"], match["digest"])


def parse_place(text: str, where: str) -> tuple[str, str]:
    """`HOST[:PORT]/PATH` of a registry as host and path, the path with a slash at its end or empty."""
    _refuse_login(text, where)
    match = _PLACE.fullmatch(text.removesuffix("/"))
    if match is None or not is_host(match["host"]) or not _has_port(match["host"]) or len(text) > _LONGEST:
        raise UsageError(
            f"`{text[:_LONGEST]}` names no registry",
            where=where,
            hint="HOST[:PORT]/PATH: localhost:5000/bench, registry.example.com/team; PATH in lower case",
        )
    return match["host"], f"{match['path']}/" if match["path"] else ""


def _refuse_login(text: str, where: str | None = None) -> None:
    """A login belongs into Docker's own store, not into a reference; nothing of it is repeated."""
    host = _behind_login(text)
    if host is not None:
        what = f"`****@{host}/…` is no reference to a registry: it holds a login"
        raise UsageError(what, where=where, hint=f"`docker login HOST` keeps logins; {FORM}")


def _behind_login(text: str) -> str | None:
    """The host of `USER:PASSWORD@HOST/…`, with or without a scheme; None: there is no login."""
    match = re.match(r"(?:\w+://)?[^/@]+@([^/]*)", text)
    return None if match is None else match[1].rpartition("@")[2]


def is_reference(token: str) -> bool:
    """Whether a word on a command line means something in a registry, as Docker tells it: what stands before
    the first slash has a dot or a colon, or is `localhost`. A benchmark is `name` or `name/flavor`."""
    first, slash, rest = token.partition("/")
    if (host := _behind_login(token)) is not None:
        return is_host(host)  # meant as one, and refused by `parse`
    return bool(slash and rest and first not in (".", "..")) and is_host(first)


def is_host(text: str) -> bool:
    return re.fullmatch(_HOST, text) is not None and ("." in text or ":" in text or text == "localhost")


def _has_port(host: str) -> bool:
    """Whether its port, if it has one, can be."""
    port = re.search(r":([0-9]+)$", host)
    return port is None or 0 < int(port[1]) <= 65535


def is_loopback(host: str) -> bool:
    """Whether `host`, with or without a port, is this machine: what never leaves it needs no TLS."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_tag(text: str) -> bool:
    return re.fullmatch(_TAG, text) is not None
