"""The SBOM document: valid CycloneDX 1.6, the same bytes for the same image, nothing left out or made up."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gymctl.images.bom import About, document

ABOUT = About("resources_servers/weather", f"sha256:{'1f' * 32}", {"dev.gymctl.inputs": "ab"}, "amd64")
VENV = "/opt/venv/lib/python3.13/site-packages"


def distribution(name: str, version: str = "1.0", folder: str = VENV, **about: Any) -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "folder": folder,
        "expression": "",
        "license": "",
        "classifiers": [],
        **about,
    }


def inventory(*distributions: dict[str, Any]) -> dict[str, Any]:
    return {
        "python": "3.13.5",
        "distributions": list(distributions),
        "dpkg": [
            {"Package": "libc6", "Version": "2.41-12", "Architecture": "amd64", "Source": "glibc"},
            {"Package": "tzdata", "Version": "1:2026b+x", "Architecture": "all", "Source": ""},
        ],
        "release": {"ID": "debian", "VERSION_ID": "13", "PRETTY_NAME": "Debian GNU/Linux 13 (trixie)"},
        "unread": ["/root"],
    }


def components(*distributions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    content = json.loads(document(ABOUT, inventory(*distributions)))
    return {one["bom-ref"]: one for one in content["components"]}


def test_the_document_is_valid_and_names_the_image() -> None:
    text = document(ABOUT, inventory(distribution("aiohttp", "3.14.5"))).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    content = json.loads(text)
    assert content["specVersion"] == "1.6"
    root = content["metadata"]["component"]
    assert (root["type"], root["name"], root["version"]) == ("container", ABOUT.name, ABOUT.id)
    properties = {(one["name"], one["value"]) for one in root["properties"]}
    assert ("gymctl:label:dev.gymctl.inputs", "ab") in properties
    assert ("gymctl:unread", "/root") in properties
    assert "timestamp" not in content["metadata"]


def test_the_order_in_which_packages_were_found_changes_no_byte() -> None:
    many = [distribution(f"p{number}", folder=f"/v{number % 3}/site-packages") for number in range(30)]
    shuffled = random.Random(7).sample(many, len(many))
    assert document(ABOUT, inventory(*many)) == document(ABOUT, inventory(*shuffled))


def test_another_image_has_another_serial_number() -> None:
    other = About(ABOUT.name, f"sha256:{'2f' * 32}", {}, "amd64")
    numbers = {json.loads(document(about, inventory()))["serialNumber"] for about in (ABOUT, other)}
    assert len(numbers) == 2


def test_one_package_in_two_environments_is_two_components() -> None:
    found = components(
        distribution("pip", "25.1"), distribution("pip", "25.1", folder="/usr/lib/dist-packages")
    )
    assert [one["purl"] for one in found.values() if one["name"] == "pip"] == ["pkg:pypi/pip@25.1"] * 2


def test_debian_packages_carry_release_and_architecture() -> None:
    found = components()
    assert found["dpkg:libc6:amd64"]["purl"] == "pkg:deb/debian/libc6@2.41-12?arch=amd64&distro=debian-13"
    assert found["dpkg:tzdata:all"]["version"] == "1:2026b+x"
    assert found["os"]["description"] == "Debian GNU/Linux 13 (trixie)"


@pytest.mark.parametrize(
    ("about", "licenses"),
    [
        ({"expression": "Apache-2.0 AND MIT"}, [{"expression": "Apache-2.0 AND MIT"}]),
        ({"license": "MIT"}, [{"license": {"id": "MIT"}}]),
        (
            {"license": "Apache 2.0", "classifiers": ["License :: OSI Approved :: Apache Software License"]},
            [{"license": {"id": "Apache-2.0"}}],
        ),
        ({"license": "BSD", "classifiers": ["License :: OSI Approved :: BSD License"]}, None),
        ({"license": "Permission is hereby granted, " * 40}, None),
        ({}, None),
    ],
)
def test_a_licence_is_named_where_the_metadata_says_which(about: dict[str, Any], licenses: Any) -> None:
    found = components(distribution("one", **about))
    assert found[f"{VENV}:one"].get("licenses") == licenses


def test_documents_that_are_made_side_by_side_have_the_same_bytes() -> None:
    """The parser of licences makes its tables at its first use; threads that come meanwhile get others."""
    script = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from gymctl.images.bom import About, document
import cyclonedx.contrib.license.factories  # else the import itself is what threads wait for
one = {"name": "x", "version": "1", "folder": "/x", "license": "", "classifiers": []}
found = [{**one, "name": f"x{i}", "expression": "(MIT OR Apache-2.0) AND BSD-3-Clause"} for i in range(40)]
found = {"python": "", "distributions": found, "dpkg": [], "release": {}, "unread": []}
about, gate = About("a", "sha256:1", {}, "amd64"), threading.Barrier(8)
sys.setswitchinterval(1e-6)
def make(_):
    gate.wait()
    return document(about, found)
with ThreadPoolExecutor(8) as pool:
    made = set(pool.map(make, range(8)))
sys.exit(0 if len(made) == 1 and b"BSD-3-Clause" in made.pop() else 1)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
