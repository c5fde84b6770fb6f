from __future__ import annotations

import pytest

from gymctl.compose.addresses import host_view, network_view, published_host, through_gateway
from gymctl.config.model import Config


@pytest.mark.parametrize(
    ("url", "dialled"),
    [
        ("http://localhost:8000/v1", "http://host.docker.internal:8000/v1"),
        ("http://localhost/v1", "http://host.docker.internal/v1"),
        ("http://127.0.0.1:9009", "http://host.docker.internal:9009"),
        ("http://127.8.9.1:9009/", "http://host.docker.internal:9009/"),
        ("http://[::1]:9009/v1?x=1", "http://host.docker.internal:9009/v1?x=1"),
        ("http://[::1]/v1", "http://host.docker.internal/v1"),
        ("http://0.0.0.0:8000/v1", "http://host.docker.internal:8000/v1"),
        ("https://user:pw@localhost:1/v1", "https://user:pw@host.docker.internal:1/v1"),
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("http://localhost.example.com/v1", "http://localhost.example.com/v1"),
        ("http://10.0.0.1:8000/v1", "http://10.0.0.1:8000/v1"),
        ("not a url", "not a url"),
        ("http://[broken", "http://[broken"),
        ("", ""),
    ],
)
def test_the_users_localhost_is_dialled_through_the_gateway(url: str, dialled: str) -> None:
    """B42."""
    assert through_gateway(url) == dialled


def test_only_an_ip_address_of_its_own_leaves_loopback() -> None:
    assert published_host("localhost") == "127.0.0.1"
    assert published_host("0.0.0.0") == "127.0.0.1"
    assert published_host("::1") == "127.0.0.1"
    assert published_host("box.example.com") == "127.0.0.1"
    assert published_host("10.1.0.7") == "10.1.0.7"


def test_the_two_views_name_the_same_servers_at_different_places(config: Config) -> None:
    outside, inside = host_view(config), network_view(config)
    assert outside["weather_agent"].url == "http://127.0.0.1:15013"
    assert inside["weather_agent"].url == "http://weather-agent:8000"
    assert (outside.head_host, outside.head_port) == ("127.0.0.1", 11000)
    assert (inside.head_host, inside.head_port) == ("head", 11000)
