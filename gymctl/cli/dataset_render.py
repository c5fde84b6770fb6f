"""`gymctl dataset render`: rows with their prompts filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.counts import counted
from gymctl.errors import PrerequisiteError, UsageError

Input = Annotated[
    str | None, typer.Option("--input", "-i", metavar="FILE.jsonl", help="Rows. [input_jsonl_fpath]")
]
PromptConfig = Annotated[
    str | None, typer.Option("--prompt-config", metavar="FILE.yaml", help="The prompt file. [prompt_config]")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE.jsonl", help="The rendered rows. [output_jsonl_fpath]"),
]


def command(
    tokens: Annotated[
        list[str] | None, typer.Argument(metavar="+KEY=VALUE", help="The keys in brackets.")
    ] = None,
    input: Input = None,
    prompt_config: PromptConfig = None,
    output: Output = None,
    search_dir: flags.SearchDirs = None,
) -> None:
    """Fill a prompt file from each row: the input that `gymctl eval --prompt-config` would send.

    Each row also says which prompt file made it: `prompt_config_used`.
    """
    from gymctl.cli.eval_input import locate, read_prompt, search_roots
    from gymctl.rollouts.rendering import render

    given = {
        "input_jsonl_fpath": input,
        "prompt_config": prompt_config,
        "output_jsonl_fpath": output,
        **_overrides(tokens or ()),
    }
    missing = [key for key, value in given.items() if not value]
    if missing:
        raise UsageError(f"missing required configuration: {', '.join(missing)}")
    roots = search_roots(None, flags.search_folders(search_dir))
    prompt = read_prompt(given["prompt_config"], roots)
    assert prompt is not None
    source, target = locate(str(given["input_jsonl_fpath"]), roots), Path(str(given["output_jsonl_fpath"]))
    try:
        rows = render(source, prompt, target)
    except OSError as error:
        raise PrerequisiteError(
            f"the rows cannot be written: {error.strerror}", where=str(error.filename or target)
        ) from error
    console = Console()
    console.data(str(target))
    console.say(f"{counted(rows, 'row')} rendered")


def _overrides(tokens: list[str] | tuple[str, ...]) -> dict[str, str]:
    keys = ("input_jsonl_fpath", "prompt_config", "output_jsonl_fpath")
    found: dict[str, str] = {}
    for token in tokens:
        key, mark, value = token.lstrip("+").partition("=")
        if not mark or key not in keys:
            raise UsageError(
                f"`{token.partition('=')[0]}` means nothing here", hint=f"keys: {', '.join(keys)}"
            )
        found[key] = value
    return found
