"""`requirements.lock` of a server folder: every package it adds to the base, with hashes, made by uv.

    # Written by `gymctl build NAME --lock-requirements`.
    # inputs: sha256:…        of the requirement files that it was made from

What the base holds is left out, and the rest was resolved beside it. So it is installed without looking at
dependencies; afterwards uv is asked, offline, whether the requirements are met. One lock is for all platforms
and for Python 3.11 and later where uv finds such versions, else for the images' Python.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gymctl.config.model import BuildSettings
from gymctl.errors import EngineError, IntegrityError, PrerequisiteError
from gymctl.images.context import Context
from gymctl.images.failure import excerpt, hint_for
from gymctl.images.secrets import BuildSecrets
from gymctl.paths import bundled
from gymctl.programs import Finished, run_command

FILE = "requirements.lock"
REQUIREMENTS, PROJECT, NO_DEPENDENCIES = "requirements.txt", "pyproject.toml", "requirements-nodeps.txt"
INSTALL = "--no-deps --require-hashes"
COMMAND = "gymctl build {} --lock-requirements"
_ANYWHERE = ("--universal", "--python-version", "3.11")
_IN_IMAGES = ("--python-version", "3.13", "--python-platform", "linux")
_INPUTS = re.compile(r"^# inputs: sha256:([0-9a-f]{64})$", re.MULTILINE)
_NAME = re.compile(r"^([A-Za-z0-9][\w.-]*)==", re.MULTILINE)


def uv() -> str:
    import uv

    return uv.find_uv_bin()


def inputs(folder: Path) -> Mapping[str, str]:
    """The requirement files of a folder that ask for something; of two kinds of the first one only that."""
    texts = {name: _text(folder / name) for name in (REQUIREMENTS, PROJECT, NO_DEPENDENCIES)}
    if (folder / REQUIREMENTS).is_file():
        del texts[PROJECT]
    return {name: text for name, text in texts.items() if says_something(text)}


def says_something(requirements: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in requirements.splitlines())


def digest(texts: Mapping[str, str]) -> str:
    total = hashlib.sha256()
    for name, text in sorted(texts.items()):
        total.update(f"{name}\0{text}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def locked(folder: Path) -> Path | None:
    """The lock of a folder that has one. IntegrityError: it was made from other requirements."""
    path = folder / FILE
    if not path.is_file():
        return None
    found = _INPUTS.search(_text(path))
    expected = digest(inputs(folder))
    if found is not None and found[1] == expected:
        return path
    has = "says nothing of what it was made from" if found is None else f"is of sha256 {found[1][:12]}"
    place = _place(folder)
    raise IntegrityError(
        f"{FILE} does not fit the requirements of {place}: it {has}, they are {expected[:12]}",
        where=str(path),
        hint=f"`{COMMAND.format(place)}` makes it anew",
    )


def locked_in(context: Context) -> bool:
    """`locked`, of what goes into a build."""
    file = context.files.get(FILE)
    return file is not None and locked(file.parent) is not None


async def write(folder: Path, settings: BuildSettings) -> int | None:
    """Lock a folder's requirements. Versions of an older lock stay where they still fit.

    Returns how many packages it names; None, and nothing is written, for a folder that adds none. Raises
    EngineError with uv's words, PrerequisiteError for a folder that cannot be written.
    """
    texts = inputs(folder)
    if not texts:
        return None
    network = BuildSecrets.of(os.environ, settings)
    bodies = [await _resolved(folder, name, network) for name in texts]
    body = "".join(bodies)
    header = f"# Written by `{COMMAND.format('NAME')}`.\n# inputs: sha256:{digest(texts)}\n"
    temporary = folder / f".{FILE}.new"
    try:
        temporary.write_text(header + body, "utf-8")
        temporary.replace(folder / FILE)
    except OSError as error:
        raise PrerequisiteError(f"{FILE} cannot be written: {error.strerror}", where=str(folder)) from None
    return len(set(_NAME.findall(body)))


async def _resolved(folder: Path, name: str, network: BuildSecrets) -> str:
    base = bundled() / "server_images" / "base.lock"
    held = [part for one in _NAME.findall(_text(base)) for part in ("--no-emit-package", one)]
    options = ("--no-deps",) if name == NO_DEPENDENCIES else ("--constraint", str(base), *held)
    environ = {"NO_COLOR": "1", **network.network}
    if network.ca is not None:
        environ["SSL_CERT_FILE"] = str(network.ca)
    with tempfile.TemporaryDirectory(prefix="gymctl-lock-") as scratch:
        output = Path(scratch) / FILE
        done: Finished | None = None
        for where in (_ANYWHERE, _IN_IMAGES):
            output.write_text(_text(folder / FILE), "utf-8")  # uv prefers the versions of its output
            done = await run_command(
                (
                    *(uv(), "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate"),
                    *("--generate-hashes", *where, *options, "--output-file", str(output), name),
                ),
                cwd=folder,
                environ=environ,
                secrets=network.values,
            )
            if done.exit_code == 0:
                return output.read_text("utf-8")
    assert done is not None
    lines = list(done.last_lines)
    raise EngineError(
        f"the requirements of {_place(folder)} cannot be locked (uv ended with {done.exit_code})",
        where=str(folder / name),
        details=excerpt(lines),
        hint=hint_for(lines),
    )


def _place(folder: Path) -> str:
    """How commands name it: `resources_servers/weather`."""
    return "/".join(folder.resolve().parts[-2:])


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.is_file() else ""
