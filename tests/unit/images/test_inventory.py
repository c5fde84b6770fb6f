"""What is installed below a folder: Python environments wherever they are, dpkg, the release."""

from __future__ import annotations

from pathlib import Path

from gymctl.images.inventory import distributions, dpkg_packages, release, site_folders

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Source: glibc
Version: 2.41-12
Description: GNU C Library
 Version: this line belongs to the description

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: half
Status: install ok half-installed
Architecture: amd64
Version: 1.0
"""


def install(folder: Path, name: str, version: str, *more: str) -> None:
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *more, "", "Text."])
    )


def test_every_environment_is_found_and_none_inside_another(tmp_path: Path) -> None:
    places = ("opt/venv/lib/python3.13/site-packages", "usr/lib/python3/dist-packages")
    for place in places:
        (tmp_path / place / "setuptools" / "_vendor" / "site-packages").mkdir(parents=True)
    unread: list[str] = []
    assert site_folders(str(tmp_path), unread) == [str(tmp_path / place) for place in places]
    assert unread == []


def test_distributions_are_those_that_pip_lists(tmp_path: Path) -> None:
    install(tmp_path, "Typing_Extensions", "4.1", "License-Expression: PSF-2.0")
    install(tmp_path, "aiohttp", "3.14", "License: Apache 2.0", "Classifier: License :: OSI Approved :: MIT")
    (tmp_path / "broken-1.dist-info").mkdir()
    found = distributions(str(tmp_path))
    assert [(one["name"], one["version"]) for one in found] == [
        ("aiohttp", "3.14"),
        ("Typing_Extensions", "4.1"),
    ]
    assert found[0]["classifiers"] == ["License :: OSI Approved :: MIT"]
    assert found[1]["expression"] == "PSF-2.0"


def test_only_installed_packages_count() -> None:
    assert dpkg_packages([STATUS]) == [
        {"Package": "libc6", "Version": "2.41-12", "Architecture": "amd64", "Source": "glibc"}
    ]


def test_what_a_distroless_image_names_is_installed() -> None:
    found = dpkg_packages(["Package: base-files\nVersion: 13.8\nArchitecture: amd64\n", STATUS])
    assert [one["Package"] for one in found] == ["base-files", "libc6"]


def test_the_release_is_read_without_quotes() -> None:
    assert release('ID=debian\n# note\nPRETTY_NAME="Debian GNU/Linux 13"\n') == {
        "ID": "debian",
        "PRETTY_NAME": "Debian GNU/Linux 13",
    }
