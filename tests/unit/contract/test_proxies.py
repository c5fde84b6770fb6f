"""Whom `X-Forwarded-*` is believed from (CONTRACT 3.5)."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gymctl.contract.part import HttpSettings
from gymctl.contract.proxies import refusal


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ([], "names no proxy"),
        (["*"], "everybody"),
        (["10.0.0.1", " * "], "everybody"),
        (["0.0.0.0/0"], "everybody"),
        (["::/0"], "everybody"),
        (["proxy.local"], "no address"),
        (["10.0.0.1/8"], "no address"),
        (["10.0.0.300"], "no address"),
        ([""], "no address"),
        (["::ffff:0:0/96"], "every IPv4 address"),
        (["::ffff:0:0/80"], "no address"),
        (["::/64"], "every IPv4 address"),
        (["::/1"], "every IPv4 address"),
    ],
)
def test_3_5_a_list_that_names_no_proxy_is_refused(entries, word) -> None:
    assert word in (refusal(entries) or "")
    with pytest.raises(ValidationError, match="uvicorn_forwarded_allow_ips"):
        HttpSettings(trusted_proxies=tuple(entries))


@pytest.mark.parametrize(
    "entry", ["127.0.0.1", "10.0.0.0/8", "128.0.0.0/1", "::1", "fd00::/8", "::ffff:10.0.0.0/104"]
)
def test_3_5_addresses_and_networks_are_taken(entry) -> None:
    assert refusal([entry]) is None
    assert HttpSettings(trusted_proxies=(entry,)).trusted_proxies == (entry,)
