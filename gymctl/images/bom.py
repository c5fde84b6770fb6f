"""The CycloneDX document of what was found in an image."""

# The library's classes are made by decorators that tell a type checker nothing of them.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from gymctl import __version__

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

# Classifiers that mean exactly one SPDX licence; "BSD License" and others do not.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
}


_PARSING = threading.Lock()
"""The parser of licences makes its tables at its first use: a second thread would meet half of them."""


@dataclass(frozen=True, slots=True)
class About:
    """What the document says of the image as a whole."""

    name: str
    id: str
    """`sha256:…` of its configuration."""
    labels: dict[str, str]
    architecture: str


def document(about: About, found: dict[str, Any]) -> bytes:
    """The CycloneDX document of an inventory (see `inventory.main`): always the same bytes."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    root = Component(
        type=ComponentType.CONTAINER,
        name=about.name,
        version=about.id,
        bom_ref=f"image:{about.id}",
        properties=[
            _property("architecture", about.architecture),
            *(_property(f"label:{key}", value) for key, value in about.labels.items()),
            *(_property("unread", path) for path in found["unread"]),
        ],
    )
    parts = [
        *_release(found["release"]),
        *_python(found["python"]),
        *(_distribution(one) for one in found["distributions"]),
        *(_package(one, found["release"]) for one in found["dpkg"]),
    ]
    bom = Bom(components=parts, serial_number=uuid5(NAMESPACE_OID, about.id))
    bom.metadata.component = root
    bom.metadata.tools.components.add(
        Component(type=ComponentType.APPLICATION, name="gymctl", version=__version__, bom_ref="gymctl")
    )
    bom.register_dependency(root, parts)
    content = json.loads(JsonV1Dot6(bom).output_as_string())
    del content["metadata"]["timestamp"]  # of this moment; the library does not do without
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _property(name: str, value: str) -> Property:
    from cyclonedx.model import Property

    return Property(name=f"gymctl:{name}", value=value)


def _release(release: dict[str, str]) -> Iterator[Component]:
    from cyclonedx.model.component import Component, ComponentType

    if release.get("ID"):
        yield Component(
            type=ComponentType.OPERATING_SYSTEM,
            name=release["ID"],
            version=_version_of(release) or None,
            description=release.get("PRETTY_NAME") or None,
            bom_ref="os",
        )


def _python(version: str) -> Iterator[Component]:
    """The interpreter that ran the inventory; dpkg does not know one that was compiled into the image."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    if version:
        purl = PackageURL("generic", name="python", version=version)
        yield Component(
            type=ComponentType.APPLICATION, name="python", version=version, purl=purl, bom_ref="python"
        )


def _distribution(one: dict[str, Any]) -> Component:
    from cyclonedx.model.component import Component
    from packageurl import PackageURL

    name, version, folder = str(one["name"]), str(one["version"]), str(one["folder"])
    return Component(
        name=name,
        version=version,
        purl=PackageURL("pypi", name=name, version=version),
        bom_ref=f"{folder}:{name}",
        licenses=_licenses(one),
        properties=[_property("environment", folder)],
    )


def _package(one: dict[str, str], release: dict[str, str]) -> Component:
    from cyclonedx.model.component import Component
    from packageurl import PackageURL

    name, version, arch = one["Package"], one["Version"], one["Architecture"]
    system = release.get("ID") or "debian"
    qualifiers = {"arch": arch, "distro": f"{system}-{_version_of(release)}".rstrip("-")}
    return Component(
        name=name,
        version=version,
        purl=PackageURL("deb", system, name, version, qualifiers),
        bom_ref=f"dpkg:{name}:{arch}",
        properties=[_property("source", one["Source"])] if one["Source"] else [],
    )


def _version_of(release: dict[str, str]) -> str:
    """Debian's testing and unstable have no number."""
    return release.get("VERSION_ID") or release.get("VERSION_CODENAME") or ""


def _licenses(one: dict[str, Any]) -> list[License]:
    """Of an SPDX expression, else of a `License` that is one, else of classifiers that mean just one each."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression

    factory = LicenseFactory()
    for text in (str(one["expression"]), str(one["license"])):
        if not text or len(text) > 200:  # a whole licence text is no expression
            continue
        with _PARSING:
            made = factory.make_from_string(text)
        if isinstance(made, LicenseExpression) or (isinstance(made, DisjunctiveLicense) and made.id):
            return [made]
    last = (str(classifier).rpartition(" :: ")[2] for classifier in one["classifiers"])
    ids = sorted({_CLASSIFIERS[name] for name in last if name in _CLASSIFIERS})
    return [factory.make_with_id(spdx) for spdx in ids]
