"""The flags of every command that reads a config, and what a list of free tokens means (CONTRACT 1.7, 1.8).

A command takes `tokens` and the aliases below as parameters and hands them to `selection(...)`. A token that
starts with `+` or `~`, or holds a `=`, is an override; one that ends in .yaml is a `--config`; any other
word is a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config.load import Selection

Tokens = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[BENCHMARK|FILE.yaml|+KEY=VALUE]...",
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
    str | None, typer.Option("--agent-type", metavar="NAME[/FLAVOR]", help="The agent to use.", hidden=True)
]
SearchDirs = Annotated[
    list[str] | None,
    typer.Option("--search-dir", metavar="DIR", help="Look here first for configs and servers. Repeatable."),
]
Model = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME", help="Model name (policy_model_name).")
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
        help="Key of the model (policy_api_key); env.yaml keeps it out of the process list.",
    ),
]
Project = Annotated[
    str | None,
    typer.Option("--project", "-p", metavar="NAME", help="Project name. Default: from config and folder."),
]


def selection(
    tokens: Sequence[str] | None = None,
    *,
    config: Sequence[str] | None = None,
    benchmark: Sequence[str] | None = None,
    environment: Sequence[str] | None = None,
    resources_server: Sequence[str] | None = None,
    search_dir: Sequence[str] | None = None,
    model_type: str | None = None,
    agent_type: str | None = None,
    model: str | None = None,
    model_url: str | None = None,
    model_api_key: str | None = None,
    project: str | None = None,
) -> Selection:
    """What a command line names, for `gymctl.config.load.load`."""
    from gymctl.config.load import Selection  # OmegaConf and pydantic: 0.3 CPU seconds

    overrides, files, benchmarks = sort_tokens(tokens or ())
    return Selection(
        config=(*(config or ()), *files),
        benchmark=(*(benchmark or ()), *benchmarks),
        environment=tuple(environment or ()),
        resources_server=tuple(resources_server or ()),
        search_dir=tuple(search_dir or ()),
        overrides=tuple(overrides),
        model_type=model_type,
        agent_type=agent_type,
        model=model,
        model_url=model_url,
        model_api_key=model_api_key,
        project=project,
    )


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
