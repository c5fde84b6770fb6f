"""`gymctl config`: the configuration a command would use (`show`), and who wrote which value (`explain`).

The other commands of the group have a module each.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import config_check, config_diff, config_render, config_schema
from gymctl.cli import selection as flags
from gymctl.cli.output import Console, inline
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config.model import Config
    from gymctl.config.telling.explain import Explanation

app = typer.Typer(help="What a configuration resolves to.", no_args_is_help=True, rich_markup_mode=None)


app.command("check")(config_check.command)
app.command("diff")(config_diff.command)
app.command("render")(config_render.command)
app.command("schema")(config_schema.command)


@app.callback()
def _group() -> None:
    """What a configuration resolves to."""


@app.command()
@flags.takes_selection
def show(
    chosen: flags.Chosen,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of YAML.")] = False,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print secrets in clear.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before printing secrets.")] = False,
) -> None:
    """Print the merged, resolved configuration; secrets are masked by key and by value."""
    if show_secrets and not yes:
        _confirm_secrets()
    from gymctl.config.load import load

    loaded = load(chosen.selection(needs_model=False))
    _print(loaded, Console(), as_json=json, show_secrets=show_secrets)


@app.command()
@flags.takes_selection
def explain(
    chosen: flags.Chosen,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key like `a.b[0].c`, or a block.")],
    json: common.JsonForText = False,
) -> None:
    """Print every writer of a value in order, the winner last, with what each said; secrets are masked."""
    from gymctl.config.load import load
    from gymctl.config.telling import explain as explaining

    loaded = load(chosen.selection(needs_model=False))
    told = explaining.explain(loaded, key)
    console = Console()
    if json:
        console.json([item.to_json() for item in told])
        return
    console.data("\n\n".join(_explained(item) for item in told))


def _explained(item: Explanation) -> str:
    """`key = value`, then a line for each writer; the last one, marked, is the one that counts."""
    width = max(len(str(write.origin)) for write in item.writers)
    lines = [f"{item.key} = {inline(item.value)}"]
    for index, write in enumerate(item.writers, start=1):
        mark = ">" if index == len(item.writers) else " "
        said = inline(write.said) if write.kind in ("value", "default") else write.said
        note = " (environment servers follow the agent)" if write.kind == "rename" else ""
        if write.kind == "value" and write.key != item.key:
            note = f" (at {write.key})"
        lines.append(f"{mark} {write.origin!s:<{width}}  {said}{note}")
    if item.is_expanded:
        lines.append("  as that was when a later file wrote into the block; it no longer follows")
    return "\n".join(lines)


def _confirm_secrets() -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            "--show-secrets prints passwords and keys, and nobody is here to confirm",
            where="--show-secrets",
            hint="add --yes if that is meant",
        )
    # Not typer.confirm: it writes a blank to stdout, which would be the first character of the document.
    sys.stderr.write("Print secrets in clear? [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed, so nothing is printed", where="--show-secrets")


def _print(config: Config, console: Console, *, as_json: bool, show_secrets: bool) -> None:
    from gymctl.config.tree.masking import mask
    from gymctl.config.tree.writing import as_yaml

    for warning in config.warnings:
        console.insist(f"warning: {warning}")
    console.say(config_check.files_in_order(config))
    document = config.document if show_secrets else mask(config.document, config.secrets)
    if as_json:
        console.json(document)
        return
    console.data(as_yaml(document).rstrip("\n"))
