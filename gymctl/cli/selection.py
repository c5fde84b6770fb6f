"""The flags of every command that reads a config, and what a list of free tokens means (CONTRACT 1.7, 1.8).

A command is decorated with `takes_selection`, or `takes_images`, and gets them all as one `Chosen`. A token
that starts with `+` or `~`, or holds a `=`, is an override; one that ends in .yaml is a `--config`; any other
word is a benchmark.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
import typer.models

from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config.sources import Selection

Tokens = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BENCHMARK|FILE.yaml|+KEY=VALUE",
        help="Benchmarks, config files, and overrides (`+a.b=v`, `++a.b=v`).",
        show_default=False,
    ),
]
ConfigFiles = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="FILE", help="A config file. Repeatable.")
]
Benchmarks = Annotated[
    list[str] | None, typer.Option("--benchmark", metavar="NAME[/FLAVOR]", help="A benchmark. Repeatable.")
]
Environments = Annotated[
    list[str] | None,
    typer.Option("--environment", metavar="NAME[/FLAVOR]", help="An environment. Repeatable."),
]
ResourcesServers = Annotated[
    list[str] | None,
    typer.Option("--resources-server", metavar="NAME[/FLAVOR]", help="A resources server. Repeatable."),
]
ModelType = Annotated[
    str | None, typer.Option("--model-type", metavar="NAME[/FLAVOR]", help="The kind of model server.")
]
AgentType = Annotated[
    str | None,
    typer.Option(
        "--agent-type", metavar="NAME[/FLAVOR]", help="The agent to use instead of the config's own."
    ),
]
AllowUnsupportedPairing = Annotated[
    bool,
    typer.Option(
        "--allow-unsupported-pairing",
        help="Run agents and model servers that the resources server does not declare support for.",
    ),
]
SearchDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--search-dir",
        metavar="DIR|PACKAGE==VERSION",
        help="Look here first for configs and servers; a published package is fetched once. Repeatable.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        *("--model", "-m"),
        metavar="NAME|record:FILE|replay:FILE",
        help="Model name (policy_model_name); record:FILE[:NAME] writes its answers to a cassette as well,"
        " replay:FILE plays one back: no model, no key, no network.",
    ),
]
OnMiss = Annotated[
    str | None,
    typer.Option(
        "--on-miss",
        metavar="fail|live|mock",
        help="With replay:FILE, a request that was not recorded is an error (default), asks the model,"
        " or gets an answer that says so.",
    ),
]
ModelUrl = Annotated[
    str | None,
    typer.Option("--model-url", metavar="URL", help="Where the model is served (policy_base_url)."),
]
ModelApiKey = Annotated[
    str | None,
    typer.Option(
        "--model-api-key",
        metavar="KEY",
        help="Key of the model (policy_api_key); env.yaml and --set-file keep it out of the process list.",
    ),
]
PolicyAt = Annotated[
    str | None,
    typer.Option(
        "--policy-at",
        metavar="[HOST:]PORT",
        help="A trainer starts the policy model, there; agents dial it. HOST: 127.0.0.1, this machine.",
    ),
]
SetFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--set-file",
        metavar="KEY=FILE",
        help="Set a key to the text of a file, unparsed: for keys and hard values. Repeatable.",
    ),
]
Ray = Annotated[
    bool,
    typer.Option(
        "--ray", help="Servers that use Ray get containers of the project's own, whatever the config names."
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option("--ray-workers", metavar="N", min=1, help="Ray containers beside the head one. Default: 1."),
]
StartAnyway = Annotated[
    bool,
    typer.Option(
        "--start-anyway",
        help="Start servers though something is missing that they seem to need: a GPU, a sandbox, a Python.",
    ),
]
"""Of the commands that start servers."""
Locked = Annotated[
    bool,
    typer.Option("--locked", help="Run the images of a lock by digest, pulled where missing; build nothing."),
]
LockFile = Annotated[
    Path | None,
    typer.Option("--lock", metavar="FILE", help="The lock of --locked. Default: images.lock.json."),
]
_OF_SERVERS_THAT_RUN = (
    *("model", "on_miss", "model_url", "model_api_key", "policy_at"),
    *("ray", "ray_workers", "project"),
)
"""Flags that change no image: understood by every command, and not in the help of those that make images."""
Project = Annotated[
    str | None,
    typer.Option("--project", "-p", metavar="NAME", help="Project name. Default: from config and folder."),
]


def _flags(
    tokens: Tokens = None,
    config: ConfigFiles = None,
    benchmark: Benchmarks = None,
    environment: Environments = None,
    resources_server: ResourcesServers = None,
    model_type: ModelType = None,
    agent_type: AgentType = None,
    allow_unsupported_pairing: AllowUnsupportedPairing = False,
    search_dir: SearchDirs = None,
    model: Model = None,
    on_miss: OnMiss = None,
    model_url: ModelUrl = None,
    model_api_key: ModelApiKey = None,
    policy_at: PolicyAt = None,
    set_file: SetFiles = None,
    ray: Ray = False,
    ray_workers: RayWorkers = None,
    project: Project = None,
) -> None:
    """The parameters that `takes_selection` gives to a command, in the order of `--help`."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a command line names. Light until it is asked for the selection."""

    given: Mapping[str, Any]

    def selection(self, *, needs_model: bool = True, start_anyway: bool = False) -> Selection:
        return selection(**self.given, needs_model=needs_model, start_anyway=start_anyway)


def takes_selection(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the selector flags; it receives them as its first parameter, one `Chosen`.

    Arguments of its own come before the free tokens, which take all that is left.
    """
    return _with_flags(command, _shared())


def takes_images(words: Any = Tokens) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`takes_selection` for a command that makes images and starts nothing. words: its own free tokens."""
    shared = [_hidden(one) if one.name in _OF_SERVERS_THAT_RUN else one for one in _shared()]
    shared = [one.replace(annotation=words) if one.name == "tokens" else one for one in shared]
    return lambda command: _with_flags(command, shared)


def _shared() -> list[inspect.Parameter]:
    return list(inspect.signature(_flags, eval_str=True).parameters.values())


def _hidden(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, info = get_args(parameter.annotation)
    info = copy.copy(info)
    info.hidden = True
    return parameter.replace(annotation=Annotated[kind, info])


def _with_flags(command: Callable[..., None], shared: Sequence[inspect.Parameter]) -> Callable[..., None]:
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    first = [parameter for parameter in own if _is_positional(parameter)]
    ordered = [*first, *shared, *(parameter for parameter in own if parameter not in first)]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in ordered]

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:
        chosen = {parameter.name: given.pop(parameter.name, None) for parameter in shared}
        command(Chosen(chosen), **given)

    # Typer reads both; the wrapped function's own would not name the flags.
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_flags


def _is_positional(parameter: inspect.Parameter) -> bool:
    notes = getattr(parameter.annotation, "__metadata__", ())
    return any(isinstance(note, typer.models.ArgumentInfo) for note in notes)


def selection(tokens: Sequence[str] | None = None, **flags: Any) -> Selection:
    """What tokens and flags (named as the fields of Selection, None where not given) select."""
    from gymctl.config.sources import Selection  # OmegaConf and pydantic: 0.3 CPU seconds

    if flags.get("policy_at") is not None:
        _refuse_models(flags)
    overrides, files, benchmarks = sort_tokens(tokens or ())
    flags["search_dir"] = search_folders(flags.get("search_dir"))
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in flags.items()
        if value is not None
    }
    return Selection(
        **{
            **given,
            "config": (*given.get("config", ()), *files),
            "benchmark": (*given.get("benchmark", ()), *benchmarks),
            "overrides": tuple(overrides),
        }
    )


def search_folders(search_dir: Sequence[str] | None) -> list[str]:
    """The folders that `--search-dir` names; a published package is fetched when it is not there yet."""
    if not search_dir:
        return []
    from gymctl.cli.output import Console
    from gymctl.config.reading.emptiness import nothing_in
    from gymctl.runtime import releases

    folders = releases.folders(search_dir, Console().insist)
    for folder, asked in zip(folders, search_dir, strict=True):
        told = nothing_in(Path(folder), asked) if Path(folder).is_dir() else None
        if told is not None:
            Console().insist(told)
    return folders


def _refuse_models(flags: Mapping[str, Any]) -> None:
    for name in ("model_type", "model", "model_url"):
        if flags.get(name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"--policy-at and {flag} do not go together", where="--policy-at")


def sort_tokens(tokens: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Free tokens as (overrides, config files, benchmarks)."""
    overrides: list[str] = []
    files: list[str] = []
    benchmarks: list[str] = []
    for token in tokens:
        if not token:
            raise UsageError("an argument is empty", hint="quote variables that may be unset")
        if token[0] in "+~" or "=" in token:
            overrides.append(token)
        elif Path(token).suffix in (".yaml", ".yml"):
            files.append(token)
        else:
            benchmarks.append(token)
    return overrides, files, benchmarks


def locked_by(is_locked: bool, file: Path | None) -> Path | None:
    """The lock file whose images are to be run, or None: whatever the folders come to is."""
    if file is not None and not is_locked:
        raise UsageError("--lock names the lock of --locked", where="--lock", hint="add --locked")
    return (file or Path("images.lock.json")) if is_locked else None


def names_a_config(chosen: Selection) -> bool:
    """Whether any file or name is selected that could start servers."""
    return bool(chosen.config or chosen.benchmark or chosen.environment or chosen.resources_server)


def override(chosen: Selection, key: str) -> str | None:
    """The last value given for a key, as text: for what is needed without any config."""
    pairs = [token.lstrip("+").partition("=") for token in chosen.overrides]
    return next((value for name, _, value in reversed(pairs) if name == key), None)
