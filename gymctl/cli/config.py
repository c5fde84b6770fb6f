"""`gymctl config show`: the configuration a command would use, merged, resolved, and with secrets masked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config import Config

app = typer.Typer(help="What a configuration resolves to.", no_args_is_help=True, rich_markup_mode=None)


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

    loaded = load(chosen.selection())
    _print(loaded, Console(), as_json=json, show_secrets=show_secrets)


def _confirm_secrets() -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            "--show-secrets prints passwords and keys, and nobody is here to confirm",
            where="--show-secrets",
            hint="add --yes if that is meant",
        )
    typer.confirm("Print secrets in clear?", abort=True, err=True)


def _print(config: Config, console: Console, *, as_json: bool, show_secrets: bool) -> None:
    from gymctl.config.masking import mask, redact

    for warning in config.warnings:
        console.insist(f"warning: {redact(warning, config.secrets)}")
    console.say("files, the last wins: " + (", ".join(str(file) for file in config.files) or "none"))
    document = config.document if show_secrets else mask(config.document, config.secrets)
    if as_json:
        console.json(document)
        return
    import yaml

    console.data(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=110).rstrip("\n"))
