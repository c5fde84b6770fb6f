"""`+a.b=v` and `++a.b=v` on the command line -> the topmost layer (CONTRACT 1.8).

The base is empty and closed: `a.b=v` and `~a` are errors. What a value means is said in `grammar`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymctl.config.model import Origin
from gymctl.config.problems import Problems
from gymctl.config.reading import grammar
from gymctl.config.reading.text import literal
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.origins import OriginTree, uniform
from gymctl.errors import ConfigError, UsageError

_KEY = re.compile(r"[A-Za-z_$][\w$-]*(\.[\w$-]+)*", re.ASCII)


@dataclass(frozen=True)
class Override:
    """One parsed token. `name` is what errors and origins call it; it never holds the value."""

    name: str
    path: tuple[str, ...]
    value: Any
    must_be_new: bool
    """`+` refuses a key that an earlier token set; `++` replaces it."""

    @classmethod
    def flag(cls, flag: str, key: str, value: str) -> Override:
        """What `--model-url` and its like set: text, byte for byte, never parsed."""
        return cls(flag, tuple(key.split(".")), literal(value), must_be_new=True)

    @classmethod
    def file(cls, token: str, cwd: Path) -> Override:
        """What `--set-file KEY=FILE` sets: the text of the file, never parsed, without one last line end."""
        key, equals, file = token.partition("=")
        name = f"--set-file {key}"
        if not equals or not file or not _KEY.fullmatch(key):
            # What stands there may be the secret itself, in the place of the file.
            raise UsageError(
                f"`{key}=…` is no KEY=FILE" if equals else "a KEY=FILE is needed",
                where="--set-file",
                hint="like: --set-file policy_api_key=/run/secrets/key",
            )
        try:
            text = (cwd / file).read_bytes().decode()
        except OSError as error:
            raise UsageError(f"the file of `{key}` cannot be read: {error.strerror}", where=name) from error
        except ValueError as error:  # no UTF-8; or a file name that holds a NUL
            raise UsageError(f"the file of `{key}` is no UTF-8 text", where=name) from error
        return cls.flag(name, key, text.removesuffix("\n").removesuffix("\r"))


def parse(tokens: Sequence[str], problems: Problems) -> list[Override]:
    """Every token as an Override; one that is not `+key=value` is reported."""
    parsed: list[Override] = []
    for token in tokens:
        with problems.collected():
            parsed.append(_parse_token(token))
    return parsed


def with_dotted_ids(overrides: Iterable[Override], ids: Collection[str]) -> list[Override]:
    """`++math.v1.x=1` means the server `math.v1` when files define one and nothing called `math`."""
    return [_rejoined(override, ids) for override in overrides]


def _rejoined(override: Override, ids: Collection[str]) -> Override:
    if override.path[0] in ids:
        return override
    for length in range(len(override.path), 1, -1):
        head = ".".join(override.path[:length])
        if head in ids:
            return replace(override, path=(head, *override.path[length:]))
    return override


def layer(overrides: Iterable[Override]) -> Layer:
    """All overrides as one layer. `+k=1 +k=2` is an error; mappings given twice are merged."""
    values: dict[str, Any] = {}
    origins: dict[Any, OriginTree] = {}
    writers: dict[tuple[str, ...], str] = {}
    for override in overrides:
        _set(values, origins, override, writers)
    return Layer("command line", values, origins)


def _parse_token(token: str) -> Override:
    sign, body = _sign(token)
    key, equals, raw = body.partition("=")
    name = f"{sign}{key}"
    if sign == "~":
        raise ConfigError(
            f"`{name}`: keys cannot be removed on the command line",
            where=name,
            hint="set the key to null, or leave the file that defines it out",
        )
    if not equals:
        raise ConfigError(
            f"`{name}` is no override: `=` is missing", where=name, hint=f"write `{name}=<value>`"
        )
    if not sign:
        raise ConfigError(
            f"`{key}` cannot be set without + or ++",
            where=key,
            hint=f"write `++{key}=<value>` to set or replace it",
        )
    if "/" in key or "@" in key:
        raise ConfigError(
            f"`{name}`: config groups are not supported", where=name, hint="separate keys with dots"
        )
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"`{key}` cannot be written as an override key",
            where=name,
            hint="set it in env.yaml or a --config file",
        )
    return Override(name, tuple(key.split(".")), grammar.value(name, key, raw), must_be_new=sign == "+")


def _sign(token: str) -> tuple[str, str]:
    for sign in ("++", "+", "~"):
        if token.startswith(sign):
            return sign, token[len(sign) :]
    return "", token


def _set(
    values: dict[str, Any],
    origins: dict[Any, OriginTree],
    override: Override,
    writers: dict[tuple[str, ...], str],
) -> None:
    node, tree = values, origins
    for depth, step in enumerate(override.path[:-1], start=1):
        child = node.setdefault(step, {})
        below = tree.setdefault(step, {})
        if not isinstance(child, dict) or not isinstance(below, dict):
            raise _twice(override, writers.get(override.path[:depth], ".".join(override.path[:depth])))
        node, tree = child, below
    _put(node, tree, override.path[-1], override.value, override, override.path, writers)


def _put(
    node: dict[str, Any],
    tree: dict[Any, OriginTree],
    key: str,
    value: Any,
    override: Override,
    path: tuple[str, ...],
    writers: dict[tuple[str, ...], str],
) -> None:
    before = node.get(key)
    below = tree.get(key)
    if isinstance(before, dict) and isinstance(value, dict) and isinstance(below, dict):
        for inner, child in value.items():
            _put(before, below, inner, child, override, (*path, inner), writers)
        return
    if key in node and override.must_be_new:
        raise _twice(override, writers.get(path, ".".join(map(str, path))))
    node[key] = value
    tree[key] = uniform(value, Origin(override.name))
    writers[path] = override.name


def _twice(override: Override, before: str) -> ConfigError:
    return ConfigError(
        f"`{'.'.join(override.path)}` is set twice, by `{before}` and `{override.name}`",
        where=override.name,
        hint="keep one; `++` replaces an earlier value",
    )
