"""The cache mounts of our Dockerfiles among what BuildKit keeps."""

from __future__ import annotations

from gymctl.images.package_cache import PackageCache, of

EXEC = "cached mount /var/cache/uv from exec /bin/sh -c cd /tmp &&\n uv pip install -r x with id "


def test_only_our_own_mounts_are_found() -> None:
    rows = [
        {"ID": "a", "Description": f'{EXEC}"/gymctl-uv"', "Size": 7, "InUse": False},
        {"ID": "b", "Description": f'{EXEC}"/gymctl-pip"', "Size": 0, "InUse": True},
        {"ID": "c", "Description": f'{EXEC}"/gymctl-perf-1-uv"', "Size": 1},
        {"ID": "d", "Description": f'{EXEC}"/their-uv"', "Size": 1},
        {"ID": "e", "Description": "mount / from exec with-network uv --mount=id=gymctl-uv", "Size": 1},
    ]
    assert of(rows) == [PackageCache("a", "gymctl-uv", 7, False), PackageCache("b", "gymctl-pip", 0, True)]
