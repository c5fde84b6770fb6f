"""A project that is up and grows: the needs of its new servers are looked at, as on a first start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gymctl.config.model import Config
from gymctl.runtime.up import has_new_servers


def up_with(*names: str) -> Any:
    return SimpleNamespace(state=SimpleNamespace(services={name: name for name in names}))


def test_a_first_start_has_new_servers(config: Config) -> None:
    assert has_new_servers(config, None)


def test_a_project_with_the_same_servers_or_more_has_none(config: Config) -> None:
    assert not has_new_servers(config, up_with(*config.servers))
    assert not has_new_servers(config, up_with(*config.servers, "gone_from_the_config"))


def test_a_project_that_lacks_one_has_new_servers(config: Config) -> None:
    first, *others = config.servers

    assert first
    assert has_new_servers(config, up_with(*others))
