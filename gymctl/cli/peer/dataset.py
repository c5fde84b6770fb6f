"""`gym dataset …` and `gym eval prepare`: files of rows."""

from __future__ import annotations

from gymctl.cli.peer.flags import parse, selectors


def prepare(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments)
    return ["dataset", "prepare", *(["--help"] if known.help else [*selectors(known), *tokens])]


def collate(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments, once=("--mode", "--output-dir"), switches=("--download",))
    if known.help:
        return ["dataset", "collate", "--help"]
    given = [("--mode", known.mode), ("--output-dir", known.output_dir)]
    return [
        *("dataset", "collate", *selectors(known)),
        *(part for flag, value in given if value is not None for part in (flag, value)),
        *(["++should_download=true"] if known.download else []),
        *tokens,
    ]


def render(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments, once=("--input", "--prompt-config", "--output"))
    if known.help:
        return ["dataset", "render", "--help"]
    given = [("--input", known.input), ("--prompt-config", known.prompt_config), ("--output", known.output)]
    roots = [("--search-dir", folder) for folder in known.search_dir]
    parts = [part for pair in (*given, *roots) if pair[1] is not None for part in pair]
    return ["dataset", "render", *parts, *tokens]
