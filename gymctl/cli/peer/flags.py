"""The flags of the peer's commands: which there are, how they are read, and which selectors go on to ours."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from gymctl.cli.selection import sort_tokens
from gymctl.errors import UsageError

REPEATED = ("--config", "--benchmark", "--environment", "--resources-server", "--search-dir")
ONCE = ("--model-type", "--agent-type", "--model", "--model-url", "--model-api-key")
PAIRING = "--allow-unsupported-pairing"
SHORT = {
    "--model": "-m",
    "--output": "-o",
    "--input": "-i",
    "--input-glob": "-i",
    "--agent": "-a",
    "--verbose": "-v",
    "--help": "-h",
}


def parse(
    command: str, arguments: list[str], *, once: Iterable[str] = (), switches: Iterable[str] = ()
) -> tuple[argparse.Namespace, list[str]]:
    """Flags of a command and its free tokens. Unknown flags: UsageError with a near name."""
    parser = _Parser(prog=f"gym {command}", allow_abbrev=False, add_help=False)
    kinds: list[tuple[Iterable[str], dict[str, Any]]] = [
        (REPEATED, {"action": "append", "default": []}),
        ((*ONCE, *once), {}),
        (("--verbose", "--help", PAIRING, *switches), {"action": "store_true"}),
    ]
    flags: list[str] = []
    for names, how in kinds:
        for flag in names:
            flags.append(flag)
            parser.add_argument(flag, *([SHORT[flag]] if flag in SHORT else []), **how)
    known, rest = parser.parse_known_args(arguments)
    unknown = [token.split("=")[0] for token in rest if token.startswith("-")]
    if unknown:
        raise unrecognized(unknown, flags)
    sort_tokens(rest)
    return known, rest


def selectors(known: argparse.Namespace) -> list[str]:
    arguments = []
    for flag in REPEATED:
        for value in getattr(known, attribute(flag)):
            arguments += [flag, value]
    for flag in ONCE:
        value = getattr(known, attribute(flag))
        if value is not None:
            arguments += [flag, value]
    if getattr(known, attribute(PAIRING)):
        arguments.append(PAIRING)
    return [*arguments, *(["+verbose=true"] if known.verbose else [])]


def settings(command: str, tokens: list[str], keys: Sequence[str], *switches: str) -> dict[str, str]:
    """`+key=value` of a command that reads no configuration; any other key is refused by name."""
    said: dict[str, str] = {}
    for token in tokens:
        key, _, value = token.lstrip("+").partition("=")
        if key not in (*keys, *switches):
            raise UsageError(f"`gym {command}` has no setting `{key}`", where=token)
        said[key] = value
    return said


def is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def attribute(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


class _Parser(argparse.ArgumentParser):
    """argparse that raises our error instead of printing its own."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where=self.prog)


def unrecognized(unknown: list[str], flags: list[str]) -> UsageError:
    from gymctl.config.names import close

    near = " or ".join(f"`{flag}`" for flag in close(unknown[0], flags))
    return UsageError(
        f"unrecognized arguments: {' '.join(unknown)}", hint=f"did you mean {near}?" if near else None
    )
