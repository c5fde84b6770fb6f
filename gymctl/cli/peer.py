"""`gym` and `ng_run`: the peer's spelling, for third-party clients and old scripts, translated to ours.

    gym env start …    -> gymctl up …            gym env resolve …  -> gymctl config show …
    gym env status     -> gymctl ps              gym eval run …     -> gymctl eval …
    ng_run +k=v …      -> gymctl up +k=v …

What gymctl cannot do yet is refused by name: a setting that is silently dropped would give another result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from gymctl.cli.output import Console
from gymctl.cli.selection import sort_tokens
from gymctl.errors import GymctlError, UsageError

REPEATED = ("--config", "--benchmark", "--environment", "--resources-server", "--search-dir")
ONCE = ("--model-type", "--agent-type", "--model", "--model-url", "--model-api-key")
SHORT = {
    "--model": "-m",
    "--output": "-o",
    "--input": "-i",
    "--agent": "-a",
    "--verbose": "-v",
    "--help": "-h",
}
SETTINGS = {
    "output_jsonl_fpath": ("--output", "--output"),
    "input_jsonl_fpath": ("--input", "--input"),
    "limit": ("--limit", "--limit"),
    "num_repeats": ("--num-repeats", "--repeats"),
    "num_samples_in_parallel": ("--concurrency", "--concurrency"),
    "agent_name": ("--agent", "--agent"),
    "responses_create_params.temperature": ("--temperature", "--temperature"),
    "responses_create_params.top_p": ("--top-p", "--top-p"),
    "responses_create_params.max_output_tokens": ("--max-output-tokens", "--max-output-tokens"),
}
"""Settings of an evaluation (CONTRACT 9.2): config key -> the peer's flag, our flag."""
NOT_YET = {
    "interleave_repeats": "--interleave-repeats",
    "responses_create_params": None,
    "prompt_config": "--prompt-config",
    "resume_from_cache": "--resume",
    "disable_aggregation": "--disable-aggregation",
    "disable_health_check": "--no-health-check",
    "health_check_workers": "--health-check-workers",
    "health_check_ignored_checks": "--health-check-ignore",
    "allow_unsupported_pairing": "--allow-unsupported-pairing",
    "agent_map": None,
    "fan_out": None,
    "num_repeats_add_seed": None,
    "skills": None,
    "route_failures_to_sidecar": None,
    "require_complete": None,
    "rollout_collection_driver": None,
}
"""Settings without a counterpart here so far, with the peer's flag for them."""
SPLIT = "benchmark"
"""The one split that an evaluation runs from its config so far."""
HELP = """usage: gym [--version] [--json] [-v] COMMAND [flags] [+key=value ...]

  gym env start     start the servers of a configuration   (gymctl up)
  gym env status    what is running                        (gymctl ps)
  gym env resolve   the merged configuration, masked       (gymctl config show)
  gym eval run      start, collect rollouts, score, stop   (gymctl eval)

`gymctl --help` shows everything under its own names."""


def gym(argv: Sequence[str] | None = None) -> NoReturn:
    """Console script `gym`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        Console().insist(HELP)
        sys.exit(1)
    _run(lambda: translate(arguments))


def ng_run(argv: Sequence[str] | None = None) -> NoReturn:
    """Console script `ng_run`: every argument is an override."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    Console().insist("deprecated: `ng_run` is now `gym env start`, or `gymctl up`")
    _run(lambda: translate(["env", "start", *arguments]))


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
    if "--json" in root and command != "env status":
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
            raise _unrecognized([flag], ["--version", "--json", "--verbose", "--help"])
        found.append(flag)
        rest.pop(0)
    return found, rest


def _env_start(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments)
    return ["up", "--help"] if known.help else ["up", *_selectors(known), *tokens]


def _env_resolve(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments)
    return ["config", "show", *(["--help"] if known.help else [*_selectors(known), *tokens])]


def _env_status(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments, switches=("--json",))
    if tokens:
        raise UsageError(f"`gym env status` takes no settings, got `{tokens[0].split('=')[0]}`")
    return ["ps", *(["--help"] if known.help else ["--json"] if known.json else [])]


def _eval_run(command: str, arguments: list[str]) -> list[str]:
    flags = [flag for flag, _ in SETTINGS.values()]
    known, tokens = _parse(command, arguments, once=(*flags, "--split"), switches=("--no-serve",))
    if known.help:
        return ["eval", "--help"]
    settings = {key: getattr(known, _attribute(flag)) for key, (flag, _) in SETTINGS.items()}
    settings["split"] = known.split
    kept = []
    for token in tokens:
        key, _, value = token.lstrip("+").partition("=")
        if token.startswith("+") and key in settings:
            settings[key] = value.strip("'\"")
        elif token.startswith("+") and key.split(".")[0] in NOT_YET:
            raise UsageError(f"`{key}` is not supported yet", where=f"+{key}")
        else:
            kept.append(token)
    if settings.pop("split") not in (None, SPLIT):
        raise UsageError(
            f"only the split `{SPLIT}` is supported yet", where="--split", hint="give rows: --input FILE"
        )
    return [
        "eval",
        *_selectors(known),
        *_settings(settings),
        *(["--no-serve"] if known.no_serve else []),
        *kept,
    ]


def _settings(settings: Mapping[str, str | None]) -> list[str]:
    """Our flags for the given settings. The peer's 0 and null mean "all"; ours mean what they say."""
    arguments: list[str] = []
    for key, value in settings.items():
        is_default = value in (None, "null") or (key == "limit" and value == "0")
        if value is not None and not is_default:
            arguments += [SETTINGS[key][1], value]
    return arguments


COMMANDS: dict[str, Callable[[str, list[str]], list[str]]] = {
    "env start": _env_start,
    "env status": _env_status,
    "env resolve": _env_resolve,
    "eval run": _eval_run,
}


def _selectors(known: argparse.Namespace) -> list[str]:
    arguments = []
    for flag in REPEATED:
        for value in getattr(known, _attribute(flag)):
            arguments += [flag, value]
    for flag in ONCE:
        value = getattr(known, _attribute(flag))
        if value is not None:
            arguments += [flag, value]
    return [*arguments, *(["+verbose=true"] if known.verbose else [])]


def _attribute(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


class _Parser(argparse.ArgumentParser):
    """argparse that raises our error instead of printing its own."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where=self.prog)


def _parse(
    command: str, arguments: list[str], *, once: Iterable[str] = (), switches: Iterable[str] = ()
) -> tuple[argparse.Namespace, list[str]]:
    """Flags of a command and its free tokens. Unknown flags: UsageError with a near name."""
    parser = _Parser(prog=f"gym {command}", allow_abbrev=False, add_help=False)
    kinds: list[tuple[Iterable[str], dict[str, Any]]] = [
        (REPEATED, {"action": "append", "default": []}),
        ((*ONCE, *once), {}),
        (("--verbose", "--help", *switches), {"action": "store_true"}),
    ]
    flags: list[str] = []
    for names, how in kinds:
        for flag in names:
            flags.append(flag)
            parser.add_argument(flag, *([SHORT[flag]] if flag in SHORT else []), **how)
    known, rest = parser.parse_known_args(arguments)
    unknown = [token.split("=")[0] for token in rest if token.startswith("-")]
    if unknown:
        raise _unrecognized(unknown, flags)
    sort_tokens(rest)
    return known, rest


def _unrecognized(unknown: list[str], flags: list[str]) -> UsageError:
    from gymctl.config.names import close

    if unknown[0] in NOT_YET.values():
        return UsageError(f"`{unknown[0]}` is not supported yet", where=unknown[0])
    near = " or ".join(f"`{flag}`" for flag in close(unknown[0], flags))
    return UsageError(
        f"unrecognized arguments: {' '.join(unknown)}", hint=f"did you mean {near}?" if near else None
    )


def _unknown(command: str) -> UsageError:
    from gymctl.config.names import suggestion

    return UsageError(
        f"`gym {command}` is not a command, or not supported yet",
        hint=suggestion(command, COMMANDS, noun="known"),
    )
