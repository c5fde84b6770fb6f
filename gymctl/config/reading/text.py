"""Text on its way through a configuration: taken as it stands, or refused because nothing can carry it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gymctl.config.problems import Problems
from gymctl.config.tree.origins import Origins, Path, children, dotted
from gymctl.errors import ConfigError

_REFERENCE_START = re.compile(r"(\\*)\$\{")


def literal(text: str) -> str:
    """`text` as a config value that resolves to exactly this text: `${` starts no reference in it."""
    return _REFERENCE_START.sub(lambda match: f"{match[1] * 2}\\${{", text)


def check(document: Mapping[str, Any], origins: Origins, problems: Problems) -> bool:
    """Report every key and value that holds half of a surrogate pair, and so cannot be written as UTF-8.

    True when there is none.

    YAML escapes make one (`"\\ud800"`), and so does a variable or argument whose bytes are no UTF-8.
    """
    found = list(_broken(document, ()))
    for path in found:
        error = ConfigError(
            f"`{_printable(dotted(path))}` holds half of a surrogate pair, which is no text",
            where=origins.where(*path),
            hint="write the character itself; bytes that are no UTF-8 cannot be passed on",
        )
        problems.add(error, *path)
    return not found


def _broken(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, str) and not _is_text(value):
        yield path
    for key, child in children(value):
        here = (*path, key)
        if isinstance(key, str) and not _is_text(key):
            yield here
        yield from _broken(child, here)


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
