"""Whose `X-Forwarded-*` headers may be believed: addresses and networks, never everybody (CONTRACT 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

_IPV4_IN_IPV6 = IPv6Network("::ffff:0:0/96")


def refusal(entries: Sequence[str]) -> str | None:
    """Why this list of proxies cannot be trusted; None when it can."""
    if not entries:
        return "names no proxy: list its addresses or networks"
    return next((reason for entry in entries if (reason := _entry(entry)) is not None), None)


def _entry(entry: str) -> str | None:
    if entry.strip() == "*":
        return "trusts everybody with `*`: name the proxies"
    try:
        network: IPv4Network | IPv6Network = ip_network(entry)
    except ValueError as error:
        return f"holds `{entry}`, which is no address and no network ({error})"
    if network.prefixlen == 0:
        return f"trusts everybody with `{entry}`: name the proxies"
    if isinstance(network, IPv6Network) and network.supernet_of(_IPV4_IN_IPV6):
        return f"trusts every IPv4 address with `{entry}`: name the proxies"
    return None
