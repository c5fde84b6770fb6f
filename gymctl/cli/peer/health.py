"""`gym eval health-check`, and the flags about it of other commands."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from gymctl.cli.peer.flags import attribute, is_true, parse, selectors
from gymctl.errors import UsageError

FLAGS = {
    "--health-check-workers": "health_check_workers",
    "--health-check-ignore": "health_check_ignored_checks",
}
"""The peer's flags with a value, and the setting of each."""
OFF = "--no-health-check"


def check(command: str, arguments: list[str]) -> list[str]:
    long, short = "--ignore-checks", "--ignore"
    arguments = [short + one.removeprefix(long) if one.startswith(long) else one for one in arguments]
    flags = ("--rollouts-file", "--workers", short)
    known, tokens = parse(command, arguments, once=flags, switches=("--json",))
    if known.help:
        return ["health-check", "--help"]
    if len(tokens) != 1 or tokens[0].startswith("+") or selectors(known):
        raise UsageError(f"`gym {command}` takes one RUN_DIR and no settings")
    given = [(flag, value) for flag in flags if (value := getattr(known, attribute(flag))) is not None]
    pairs = [part for pair in given for part in pair]
    return ["health-check", tokens[0], *pairs, *(["--json"] if known.json else [])]


def of_run(known: argparse.Namespace) -> list[str]:
    """Settings of an evaluation."""
    workers, ignored = (getattr(known, attribute(flag)) for flag in FLAGS)
    return [
        *([] if workers is None else [f"++health_check_workers={workers}"]),
        *([] if ignored is None else [f"++health_check_ignored_checks=[{ignored}]"]),
    ]


def of_aggregate(known: argparse.Namespace, said: Mapping[str, str]) -> list[str]:
    """Flags of `gymctl metrics --aggregate`, from the peer's flags and settings."""
    is_off = known.no_health_check or is_true(said.get("disable_health_check"))
    parts = [OFF] if is_off else []
    for flag, key in FLAGS.items():
        value = getattr(known, attribute(flag)) or said.get(key, "").strip("[]")
        parts += [flag, value] if value else []
    return parts
