"""`gym` and `ng_run`: the peer's spelling, for third-party clients and old scripts, translated to ours.

    gym env start …    -> gymctl up …            gym env resolve …  -> gymctl config show …
    gym env status     -> gymctl ps              gym eval run …     -> gymctl eval …
    gym eval profile … -> gymctl metrics …       gym eval aggregate … -> gymctl metrics …
    gym eval reverify … -> gymctl reverify …
    gym eval prepare … -> gymctl dataset prepare …
    gym dataset …      -> gymctl dataset …       (collate, render; env schema is dataset schema)
    ng_run +k=v …      -> gymctl up +k=v …

What gymctl cannot do yet is refused by name: a setting that is silently dropped would give another result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from gymctl.cli.output import Console
from gymctl.cli.selection import sort_tokens
from gymctl.errors import GymctlError, UsageError

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
SETTINGS = {
    "--output": "--output",
    "--input": "--input",
    "--split": "--split",
    "--limit": "--limit",
    "--num-repeats": "--repeats",
    "--concurrency": "--concurrency",
    "--agent": "--agent",
    "--prompt-config": "--prompt-config",
    "--temperature": "--temperature",
    "--top-p": "--top-p",
    "--max-output-tokens": "--max-output-tokens",
}
"""The peer's flags with a value for an evaluation, and ours."""
SWITCHES = {
    "--no-serve": "--no-serve",
    "--interleave-repeats": "--interleave-repeats",
    "--disable-aggregation": "++disable_aggregation=true",
    "--no-health-check": "++disable_health_check=true",
    "--resume": "++resume_from_cache=true",
}
"""The peer's flags without one, and what we call them."""
REVERIFY_SAME = ("--concurrency", "--limit")
REVERIFY_SWITCHES = {
    "--force": ("--force",),
    "--overwrite": ("--overwrite",),
    "--resume": ("--resume",),
    "--append": ("--append",),
    "--judge-failed-only": ("--only", "judge-failed"),
    "--disable-aggregation": ("--disable-aggregation",),
}
NOT_YET = {
    "health_check_workers": "--health-check-workers",
    "health_check_ignored_checks": "--health-check-ignore",
}
"""Settings without a counterpart here so far, with the peer's flag for them."""
HELP = """usage: gym [--version] [--json] [-v] COMMAND [flags] [+key=value ...]

  gym env start     start the servers of a configuration   (gymctl up)
  gym env status    what is running                        (gymctl ps)
  gym env resolve   the merged configuration, masked       (gymctl config show)
  gym eval run      start, collect rollouts, score, stop   (gymctl eval)
  gym eval profile  the reward profile of saved rollouts   (gymctl metrics --by task)
  gym eval aggregate  one run of several shards            (gymctl metrics A.jsonl B.jsonl)
  gym eval reverify score saved rollouts again             (gymctl reverify)
  gym env schema    the task fields of a server            (gymctl dataset schema)
  gym eval prepare  make the files of declared datasets    (gymctl dataset prepare)
  gym dataset collate | render   files of rows             (gymctl dataset)

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
    known, tokens = _parse(command, arguments, once=SETTINGS, switches=SWITCHES)
    if known.help:
        return ["eval", "--help"]
    for token in tokens:
        key = token.lstrip("+").partition("=")[0]
        if token.startswith("+") and key.split(".")[0] in NOT_YET:
            raise UsageError(f"`{key}` is not supported yet", where=f"+{key}")
    settings = {flag: getattr(known, _attribute(flag)) for flag in SETTINGS}
    if settings["--limit"] == "0":
        settings["--limit"] = None  # "all" for the peer; our flag means what it says
    given = [(SETTINGS[flag], value) for flag, value in settings.items() if value is not None]
    return [
        "eval",
        "--fresh-by-default",  # the peer replaces results unless it is told to resume
        *([] if known.no_serve else ["--collate"]),
        *_selectors(known),
        *(part for pair in given for part in pair),
        *(ours for flag, ours in SWITCHES.items() if getattr(known, _attribute(flag))),
        *tokens,
    ]


def _eval_profile(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments, once=("--inputs", "--rollouts"))
    if known.help:
        return ["metrics", "--help"]
    said = _settings(
        command, tokens, ("materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath"), "allow_partial_rollouts"
    )
    rollouts = known.rollouts or said.get("rollouts_jsonl_fpath")
    inputs = known.inputs or said.get("materialized_inputs_jsonl_fpath")
    if rollouts is None or inputs is None:
        raise UsageError(f"`gym {command}` needs --inputs and --rollouts")
    partial = ["--allow-partial"] if _is_true(said.get("allow_partial_rollouts")) else []
    return ["metrics", rollouts, "--write-profile", "--inputs", inputs, *partial]


def _eval_aggregate(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments, once=("--input-glob", "--output"))
    if known.help:
        return ["metrics", "--help"]
    keys = (
        "input_glob",
        "output_jsonl_fpath",
        "count_failure_classes_as_zero",
        "head_server.host",
        "head_server.port",
    )
    said = _settings(
        command, tokens, keys, "merge_shards", "count_missing_rollouts_as_zero", "disable_health_check"
    )
    patterns = known.input_glob or said.get("input_glob")
    output = known.output or said.get("output_jsonl_fpath")
    if patterns is None or output is None:
        raise UsageError(f"`gym {command}` needs --input-glob and --output")
    labels = [label.strip() for label in said.get("count_failure_classes_as_zero", "").strip("[]").split(",")]
    port = said.get("head_server.port")
    return [
        "metrics",
        *(pattern for pattern in patterns.split(",") if pattern),
        *("--aggregate", output),
        *(part for label in labels if label for part in ("--zero", label)),
        *(["--missing-as-zero"] if _is_true(said.get("count_missing_rollouts_as_zero")) else []),
        *([] if _is_true(said.get("merge_shards", "true")) else ["--no-merge"]),
        *([] if port is None else ["--head", f"http://{said.get('head_server.host', '127.0.0.1')}:{port}"]),
    ]


def _settings(command: str, tokens: list[str], keys: Sequence[str], *switches: str) -> dict[str, str]:
    """`+key=value` of a command that reads no configuration; any other key is refused by name."""
    said: dict[str, str] = {}
    for token in tokens:
        key, _, value = token.lstrip("+").partition("=")
        if key not in (*keys, *switches):
            raise UsageError(f"`gym {command}` has no setting `{key}`", where=token)
        said[key] = value
    return said


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def _eval_reverify(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(
        command,
        arguments,
        once=("--rollouts", "--inputs", "--output", *REVERIFY_SAME),
        switches=REVERIFY_SWITCHES,
    )
    if known.help:
        return ["reverify", "--help"]
    if known.rollouts is None:
        raise UsageError("which rollouts are to be scored again is not said", hint="--rollouts FILE.jsonl")
    given = [
        (flag, value)
        for flag in ("--inputs", "--output", *REVERIFY_SAME)
        if (value := getattr(known, _attribute(flag))) is not None
    ]
    return [
        "reverify",
        known.rollouts,
        *_selectors(known),
        *(part for pair in given for part in pair),
        *(
            part
            for flag, ours in REVERIFY_SWITCHES.items()
            if getattr(known, _attribute(flag))
            for part in ours
        ),
        *tokens,
    ]


def _env_schema(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments)
    if known.help:
        return ["dataset", "schema", "--help"]
    if len(known.resources_server) != 1 or tokens:
        raise UsageError("`gym env schema` needs one --resources-server", where="--resources-server")
    roots = [part for folder in known.search_dir for part in ("--search-dir", folder)]
    return ["dataset", "schema", *known.resources_server, *roots]


def _eval_prepare(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments)
    return ["dataset", "prepare", *(["--help"] if known.help else [*_selectors(known), *tokens])]


def _dataset_collate(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments, once=("--mode", "--output-dir"), switches=("--download",))
    if known.help:
        return ["dataset", "collate", "--help"]
    given = [("--mode", known.mode), ("--output-dir", known.output_dir)]
    return [
        *("dataset", "collate", *_selectors(known)),
        *(part for flag, value in given if value is not None for part in (flag, value)),
        *(["++should_download=true"] if known.download else []),
        *tokens,
    ]


def _dataset_render(command: str, arguments: list[str]) -> list[str]:
    known, tokens = _parse(command, arguments, once=("--input", "--prompt-config", "--output"))
    if known.help:
        return ["dataset", "render", "--help"]
    given = [("--input", known.input), ("--prompt-config", known.prompt_config), ("--output", known.output)]
    roots = [("--search-dir", folder) for folder in known.search_dir]
    parts = [part for pair in (*given, *roots) if pair[1] is not None for part in pair]
    return ["dataset", "render", *parts, *tokens]


COMMANDS: dict[str, Callable[[str, list[str]], list[str]]] = {
    "env start": _env_start,
    "env status": _env_status,
    "env resolve": _env_resolve,
    "eval run": _eval_run,
    "eval profile": _eval_profile,
    "eval aggregate": _eval_aggregate,
    "eval reverify": _eval_reverify,
    "env schema": _env_schema,
    "eval prepare": _eval_prepare,
    "dataset collate": _dataset_collate,
    "dataset render": _dataset_render,
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
    if getattr(known, _attribute(PAIRING)):
        arguments.append(PAIRING)
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
