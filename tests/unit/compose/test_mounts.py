"""Files of the host that a server may read, mounted read-only at their own place."""

from __future__ import annotations

import pytest

from gymctl.compose.mounts import declares, mounts
from gymctl.errors import ConfigError


def test_a_block_without_mounts_has_none() -> None:
    assert mounts("policy_model", {}) == ()


def test_each_path_is_mounted_once_at_its_own_place_and_read_only() -> None:
    found = mounts("policy_model", {"mounts": ["/data/models/", "/data/models", "/srv/x.gguf"]})
    assert [(mount.source, mount.target) for mount in found] == [
        ("/data/models", "/data/models"),
        ("/srv/x.gguf", "/srv/x.gguf"),
    ]
    assert all(mount.read_only and not mount.bind.create_host_path for mount in found)


@pytest.mark.parametrize(
    "value", ["x.gguf", "~/x.gguf", "/data/../etc", 7, None, "/", "/etc", "/run/", {"path": "/data/x"}]
)
def test_other_values_are_refused_with_the_server_and_the_key(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        mounts("policy_model", {"mounts": [value]})
    assert caught.value.where == "policy_model…mounts"


def test_a_file_may_be_writable() -> None:
    entry = {"path": "/data/run.cassette", "writable": True}
    found = mounts("policy_model", {"mounts": ["/data/x", entry, "/data/run.cassette"]})
    assert [(mount.target, mount.read_only) for mount in found] == [
        ("/data/x", True),
        ("/data/run.cassette", False),
    ]


def test_a_mapping_belongs_to_the_implementation() -> None:
    assert not declares({"mounts": {"a": "b"}})
