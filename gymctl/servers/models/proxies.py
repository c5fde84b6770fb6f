"""The way to an upstream: straight, or through the proxy that `upstream_proxy` of a model server names.

Proxy variables of the environment count only when the setting says so: Docker puts them into containers
without being asked, and calls between servers must never follow them.
"""

from __future__ import annotations

import base64
import ipaddress
import urllib.parse
import urllib.request

from gymctl.connections import Route
from gymctl.errors import ConfigError

ENVIRONMENT = "environment"
_NEAR = frozenset({"localhost", "host.docker.internal"})
"""This machine under its other names; no proxy could reach it."""


def route(url: str, setting: str | None) -> Route:
    """How to get to `url`. `setting`: None, `environment`, or the URL of a proxy."""
    if not setting:
        return Route()
    if setting != ENVIRONMENT and not _is_proxy(setting):
        raise ConfigError(
            f"`upstream_proxy` must be the http:// or https:// URL of a proxy, or `{ENVIRONMENT}`",
            hint="leave it out to reach the upstream straight",
        )
    if setting != ENVIRONMENT:
        return Route(*without_user_info(setting))
    found = _from_environment(url)
    if found is not None and not _is_proxy(found):
        raise ConfigError(
            f"`upstream_proxy: {ENVIRONMENT}`: the proxy variables of the environment name no http:// or "
            "https:// URL",
            hint="HTTPS_PROXY and HTTP_PROXY are looked at, ALL_PROXY where neither is set",
        )
    return Route() if found is None else Route(*without_user_info(found))


def _is_proxy(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _from_environment(url: str) -> str | None:
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    if _is_near(host) or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies_environment()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return found if found is None or "://" in found else f"http://{found}"


def _is_near(host: str) -> bool:
    if host in _NEAR:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_user_info(url: str) -> tuple[str, str | None]:
    """The URL without user name and password, and the `Authorization` header that they mean."""
    parts = urllib.parse.urlsplit(url)
    user_info, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, None
    name_and_password = urllib.parse.unquote(user_info).encode()
    header = f"Basic {base64.b64encode(name_and_password).decode()}"
    return urllib.parse.urlunsplit(parts._replace(netloc=place)), header
