"""How files with secrets are written: mode 0600 in a 0700 folder, whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from gymctl.errors import PrerequisiteError


def make_folder(folder: Path) -> Path:
    """A folder, made if needed, that only its owner can enter. PrerequisiteError where none can be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise PrerequisiteError(
            f"a folder of gymctl's own cannot be made here: {error.strerror}",
            where=str(folder),
            hint="go to a folder that you may write and that has room",
        ) from error
    return folder


def write(path: Path, text: str, *, owner: tuple[int, int] | None = None) -> None:
    """Replace `path` atomically. owner: uid and gid that must be able to read it (needs root)."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if owner is not None:
            os.chown(temporary, *owner)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def project_secret(path: Path) -> bytes:
    """The random key of a project, from which session secrets are derived; a new one when none is written."""
    return read_secret(path) or secrets.token_bytes(32)


def write_secret(path: Path, secret: bytes) -> None:
    write(path, secret.hex())


def read_secret(path: Path) -> bytes | None:
    """The random key of a project; None when it is not up."""
    try:
        return bytes.fromhex(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None
