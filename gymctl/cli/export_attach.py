"""`gymctl export attach`: the configuration with which NeMo RL, verl and Megatron use a project's servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import ConfigError, PrerequisiteError, ServerError, UsageError

if TYPE_CHECKING:
    from gymctl.config.model import Config
    from gymctl.runtime.running import RunningProject


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where it is written; `-` is stdout.")],
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="URL", help="The project behind this head, wherever it runs."),
    ] = None,
) -> None:
    """Write what a client that has NeMo Gym on its side adds to its config_paths to use our servers.

    Of the project that runs in this folder, of the one that is selected, or of the one behind --head. One
    that is not up needs a fixed port for every server. It must have been started with --policy-at.
    """
    console = Console()
    selection = chosen.selection(needs_model=False)
    if head is not None and flags.names_a_config(selection):
        raise UsageError("--head and a configuration do not go together", where="--head")
    if head is not None:
        text = _of_head(head, are_containers=True)
    elif flags.names_a_config(selection):
        from gymctl.config.load import load

        text = _of_config(load(chosen.selection()))
    else:
        from gymctl.cli import projects

        text = _of_project(projects.find(selection.project))
    if str(file) == "-":
        console.data(text.rstrip("\n"))
        return
    _write(file, text)
    console.say(f"wrote {file}; name it in the config_paths of the trainer")


def _of_project(project: RunningProject) -> str:
    return _of_head(project.head_url, are_containers=project.runtime == "compose")


def _of_head(url: str, *, are_containers: bool) -> str:
    import asyncio

    from gymctl.clients import attachment
    from gymctl.rollouts import head
    from gymctl.transport import Transport

    async def asked() -> tuple[dict, object]:
        async with Transport() as transport:
            document = await head.document(transport, url)
            answer = await transport.call("GET", f"{url}/server_instances", timeout=10, retry_seconds=0)
            return document, answer.json()

    document, rows = asyncio.run(asked())
    if not isinstance(rows, list) or not rows:
        raise ServerError("not all servers are up yet", where=url, hint="gymctl ps tells which")
    running = {row["process_name"]: row for row in rows}
    return attachment.text(document, running, are_containers=are_containers)


def _of_config(config: Config) -> str:
    """Of the project when it runs; else by the ports that its configuration fixes."""
    from gymctl.clients import attachment
    from gymctl.compose.addresses import host_view
    from gymctl.runtime import attach, parts

    project = attach.running(config.project)
    if project is not None:
        return _of_project(project)
    open_ports = [name for name, block in config.servers.items() if not block.is_port_explicit]
    if open_ports:
        raise ConfigError(
            f"{config.project} is not up, and these have no fixed port: {', '.join(open_ports)}",
            hint="gymctl up first, or give each a `port`",
        )
    document = parts.document_for(config, host_view(config))
    return attachment.text(document, config.servers, are_containers=True)


def _write(path: Path, text: str) -> None:
    from gymctl.config.reading.roots import is_special
    from gymctl.runtime import private

    if is_special(path):  # it would be replaced
        raise UsageError("that is a device, a pipe or a socket", where=str(path), hint="`-` is stdout")
    try:
        private.write(path, text)
    except OSError as error:
        raise PrerequisiteError(f"the file cannot be written: {error.strerror}", where=str(path)) from error
