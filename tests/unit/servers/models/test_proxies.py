"""B43: whether model traffic goes through a proxy is one setting; the environment alone never decides."""

from __future__ import annotations

import pytest

from gymctl.errors import ConfigError
from gymctl.servers.models.proxies import route, without_user_info

OUTSIDE = "https://api.example.com/v1"


@pytest.fixture(autouse=True)
def proxy_variables(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("HTTP_PROXY", "plain-proxy:80")
    monkeypatch.setenv("NO_PROXY", ".inside.example.com")


def test_b43_without_the_setting_the_environment_does_not_count():
    assert route(OUTSIDE, None).proxy is None
    assert route(OUTSIDE, "").proxy is None


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        (OUTSIDE, "http://proxy:3128"),
        ("http://api.example.com/v1", "http://plain-proxy:80"),
        ("https://model.inside.example.com/v1", None),
        ("http://localhost:8000/v1", None),
        ("http://127.0.0.1:8000/v1", None),
        ("http://[::1]:8000/v1", None),
        ("http://host.docker.internal:8000/v1", None),
    ],
)
def test_b43_the_environment_counts_when_the_setting_says_so(url: str, proxy: str | None):
    assert route(url, "environment").proxy == proxy


def test_b43_a_proxy_may_be_named():
    named = route(OUTSIDE, "http://user:pass@other:3128")
    assert (named.proxy, named.proxy_authorization) == ("http://other:3128", "Basic dXNlcjpwYXNz")


@pytest.mark.parametrize(
    "setting", ["socks5://proxy:1080", "proxy:3128", "yes", "http://", "http://me:pw@proxy:port"]
)
def test_what_is_no_proxy_is_refused_without_repeating_it(setting: str):
    with pytest.raises(ConfigError, match="upstream_proxy") as caught:
        route(OUTSIDE, setting)
    assert setting not in str(caught.value).replace("http:// or https://", "")


@pytest.mark.parametrize("found", ["socks5://me:pw@proxy:1080", "http://me:pw@proxy:port"])
def test_an_environment_that_names_no_proxy_is_refused_without_repeating_it(monkeypatch, found: str):
    monkeypatch.setenv("HTTPS_PROXY", found)
    with pytest.raises(ConfigError, match="environment") as caught:
        route(OUTSIDE, "environment")
    assert "pw" not in str(caught.value)


def test_user_info_becomes_a_header_and_leaves_the_url():
    assert without_user_info("https://me:p%40ss@host:8/v1?q=1") == (
        "https://host:8/v1?q=1",
        "Basic bWU6cEBzcw==",
    )
    assert without_user_info("https://host/v1@2") == ("https://host/v1@2", None)


def test_b71_a_limit_for_connecting_brings_no_other_limit():
    timeout = route(OUTSIDE, None).options["timeout"]
    assert timeout.sock_connect == 10
    assert (timeout.total, timeout.connect, timeout.sock_read) == (None, None, None)
