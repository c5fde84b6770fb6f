"""The gymctl that runs, as another project can depend on it: its checkout, or a wheel made of its files."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from gymctl.errors import PrerequisiteError
from gymctl.paths import PACKAGE, bundled

NAME = "gymctl"
_LEFT_OUT = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
"""Files of a .dist-info folder that an installer writes."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def checkout() -> Path | None:
    """The folder of the sources that run; None when gymctl was installed from a wheel."""
    return PACKAGE.parent if bundled() == PACKAGE.parent else None


def pack(folder: Path) -> Path:
    """Make a wheel of the installed gymctl: no index need have it. The same files give the same bytes.

    Raises PrerequisiteError when the installation cannot be read.
    """
    try:
        installed = metadata.distribution(NAME)
        files = dict(sorted(_files(installed)))
    except (metadata.PackageNotFoundError, OSError) as error:
        raise PrerequisiteError(
            f"the installed {NAME} cannot be packed: {error}", hint="install it from its wheel"
        ) from error
    version = installed.version
    record = f"{NAME}-{version}.dist-info/RECORD"
    rows = [_row(name, path.read_bytes()) for name, path in files.items()]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{NAME}-{version}-py3-none-any.whl"
    temporary = target.with_suffix(".part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, path in files.items():
            wheel.writestr(_entry(name, path.stat().st_mode), path.read_bytes())
        wheel.writestr(_entry(record, 0o100644), "\n".join([*rows, f"{record},,"]) + "\n")
    if not target.exists() or target.read_bytes() != temporary.read_bytes():
        temporary.replace(target)
    else:
        temporary.unlink()
    return target


def _files(installed: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Every file that came with the wheel; scripts and caches are made by whoever installs it."""
    for file in installed.files or ():
        is_made = file.suffix == ".pyc" or ".." in file.parts or file.is_absolute()
        if is_made or (file.parts[0].endswith(".dist-info") and file.name in _LEFT_OUT):
            continue
        yield file.as_posix(), Path(str(installed.locate_file(file)))


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = (mode & 0xFFFF) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _row(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")
    return f"{name},sha256={digest},{len(content)}"
