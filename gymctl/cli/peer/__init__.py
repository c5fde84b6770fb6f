"""`gym` and `ng_*`: the peer's spelling, for third-party clients and old scripts, translated to ours.

    gym env start …    -> gymctl up …            gym env resolve …  -> gymctl config show …
    gym env status     asks the head             gym eval run …     -> gymctl eval …
    gym eval profile … -> gymctl metrics …       gym eval aggregate … -> gymctl metrics …
    gym eval reverify … -> gymctl reverify …
    gym eval prepare … -> gymctl dataset prepare …
    gym eval health-check … -> gymctl health-check …
    gym dataset …      -> gymctl dataset …       (collate, render; env schema is dataset schema)
    ng_run +k=v …      -> gymctl up +k=v …       ng_collect_rollouts +k=v … -> gymctl eval --no-serve +k=v …

What gymctl cannot do yet is refused by name: a setting that is silently dropped would give another result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from gymctl.cli.output import Console
from gymctl.cli.peer import dataset, env, evaluation, health, legacy, status
from gymctl.cli.peer.flags import unrecognized
from gymctl.errors import GymctlError, UsageError

HELP = """usage: gym [--version] [--json] [-v] COMMAND [flags] [+key=value ...]

  gym env start     start the servers of a configuration   (gymctl up)
  gym env status    the servers behind the head, and whether they answer
  gym env resolve   the merged configuration, masked       (gymctl config show)
  gym eval run      start, collect rollouts, score, stop   (gymctl eval)
  gym eval profile  the reward profile of saved rollouts   (gymctl metrics --by task)
  gym eval aggregate  one run of several shards            (gymctl metrics A.jsonl B.jsonl)
  gym eval reverify score saved rollouts again             (gymctl reverify)
  gym eval health-check  what was seen of saved rollouts   (gymctl health-check)
  gym env schema    the task fields of a server            (gymctl dataset schema)
  gym eval prepare  make the files of declared datasets    (gymctl dataset prepare)
  gym dataset collate | render   files of rows             (gymctl dataset)

`gymctl --help` shows everything under its own names."""
COMMANDS: dict[str, Callable[[str, list[str]], list[str] | str]] = {
    "env start": env.start,
    "env status": status.status,
    "env resolve": env.resolve,
    "eval run": evaluation.run,
    "eval profile": evaluation.profile,
    "eval aggregate": evaluation.aggregate,
    "eval reverify": evaluation.reverify,
    "eval health-check": health.check,
    "env schema": env.schema,
    "eval prepare": dataset.prepare,
    "dataset collate": dataset.collate,
    "dataset render": dataset.render,
}


def gym(argv: Sequence[str] | None = None) -> NoReturn:
    """Console script `gym`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        Console().insist(HELP)
        sys.exit(1)
    _run(lambda: translate(arguments))


def ng() -> NoReturn:
    """Console scripts `ng_run`, `ng_collect_rollouts` and so on: the name of the program is the command."""
    program = Path(sys.argv[0]).name
    command = legacy.command(program)
    Console().insist(f"deprecated: `{program}` is now `gym {' '.join(command)}`")
    _run(lambda: translate([*command, *sys.argv[1:]]))


def translate(argv: Sequence[str]) -> list[str] | str:
    """The arguments of `gymctl` that do the same, or text to print. Raises UsageError."""
    root, rest = _root_flags(argv)
    if "--version" in root:
        from gymctl.cli.version import version

        return version(as_json="--json" in root)
    if not rest or "--help" in root:
        return HELP
    command = " ".join(rest[:2])
    if command not in COMMANDS:
        raise _unknown(command)
    if "--json" in root and command not in ("env status", "eval health-check"):
        raise UsageError(f"`gym {command}` has no JSON output", where="--json")
    return COMMANDS[command](command, [*rest[2:], *root])


def _run(translated: Callable[[], list[str] | str]) -> NoReturn:
    try:
        arguments = translated()
    except GymctlError as error:
        Console().error(error)
        sys.exit(error.exit_code)
    if isinstance(arguments, str):
        Console().data(arguments)
        sys.exit(0)
    from gymctl.cli.main import main

    main(arguments)
    sys.exit(0)


def _root_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags before the command in their long form, and the rest."""
    long = {"-v": "--verbose", "-h": "--help"}
    rest = list(argv)
    found = []
    while rest and rest[0].startswith("-"):
        flag = long.get(rest[0], rest[0])
        if flag not in ("--version", "--json", "--verbose", "--help"):
            raise unrecognized([flag], ["--version", "--json", "--verbose", "--help"])
        found.append(flag)
        rest.pop(0)
    return found, rest


def _unknown(command: str) -> UsageError:
    from gymctl.config.names import suggestion

    return UsageError(
        f"`gym {command}` is not a command, or not supported yet",
        hint=suggestion(command, COMMANDS, noun="known"),
    )
