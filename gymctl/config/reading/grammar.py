"""The value of an override, as Hydra's own parser reads it (CONTRACT 1.8); sweeps never happen.

A value that the grammar cannot hold (`sk-ab==`, `#1`, `x=1&y=2`) is taken as it stands, unless its author
meant the grammar (a list, quotes, `${…}`): then the error shows the quoting that works. Plain words, numbers,
true, false and null, which are most values, are read without the parser: importing it costs 0.3 CPU seconds,
more than the rest of a command that ends in an error. A test compares the two.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

from gymctl.config.reading.text import literal
from gymctl.config.tree.masking import is_secret
from gymctl.errors import ConfigError

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*|https?://[A-Za-z0-9_.-]+(:[0-9]{1,5})?(/[A-Za-z0-9_./-]*)?")
_CONSTANTS: dict[str, Any] = {"null": None, "true": True, "false": False}
_NO_WORDS = frozenset(("nan", "inf"))
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,18}")
_STRUCTURED = re.compile(r"\s*[\[{'\"]|.*\$\{|\w+\(", re.DOTALL)
"""Values whose author meant the grammar: a list, a mapping, quotes, an interpolation, a function."""


def value(name: str, key: str, raw: str) -> Any:
    """What `raw` means. `name` is the token without its value. Raises ConfigError; it shows no secret."""
    if raw.lower() in _CONSTANTS:
        return _CONSTANTS[raw.lower()]
    if _WORD.fullmatch(raw) and raw.lower() not in _NO_WORDS:
        return raw
    if _WHOLE.fullmatch(raw):
        return int(raw)
    if _DECIMAL.fullmatch(raw):
        return float(raw)
    from hydra.errors import HydraException

    try:
        parsed = _parser().parse_override(f"+{key}={raw}")
    except (HydraException, RecursionError, ValueError) as error:  # ValueError: 5000 digits are no number
        if not _STRUCTURED.match(raw):
            return raw
        reason = str(error).splitlines()[0]
        shown = "" if is_secret(key) else f": {reason}"
        raise ConfigError(
            f"the value of `{name}` cannot be read{shown}", where=name, hint=_quoting(name, key, raw)
        ) from None
    if parsed.is_sweep_override():
        raise ConfigError(
            f"the value of `{name}` is a sweep, and one command runs one configuration",
            where=name,
            hint=_quoting(name, key, raw),
            details=[] if is_secret(key) else [f"for a list: {shlex.quote(f'{name}=[{raw}]')}"],
        )
    return parsed.value()


def quoted(text: str) -> str:
    """`text` as a quoted string of the override grammar."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text=text, quote=Quote.double).with_quotes()


def _quoting(name: str, key: str, raw: str) -> str:
    """The token that carries exactly this text, ready for a shell; secrets stay unprinted."""
    if is_secret(key):
        return f"--set-file {key}=FILE takes any text; or quote it twice: '{name}=\"<value>\"'"
    text = literal(raw)
    token = f"{name}={quoted(text)}"
    if _parser().parse_override(f"+{key}={quoted(text)}").value() != text:
        return "set it in env.yaml or a --config file"
    return f"for text, quote it twice: {shlex.quote(token)}"


@cache
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()
