"""`gymctl list`: the servers, benchmarks and environments found here, and what each needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config.needs.catalogue import Listed, ListedKind
    from gymctl.config.needs.need import Need

HEADER = ("KIND", "NAME", "FAMILY", "NEEDS", "CONFIGS")
KINDS: dict[str, ListedKind] = {
    "models": "responses_api_models",
    "resources": "resources_servers",
    "agents": "responses_api_agents",
    "environment-servers": "environment_servers",
    "benchmarks": "benchmarks",
    "environments": "environments",
}
SHOWN_CONFIGS = 3


def command(
    kind: Annotated[
        str | None,
        typer.Argument(metavar=f"[{'|'.join(KINDS)}]", help="Only these.", show_default=False),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Only these names; `*` stands for any text.", show_default=False),
    ] = None,
    search_dir: flags.SearchDirs = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NEED", help="Only what does not need this: gpu. Repeatable."),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Each need with the line that says so.")] = False,
    json: common.JsonForTable = False,
) -> None:
    """List what is found over the search roots, and what it needs: a GPU, a sandbox, a judge, network, keys.

    Needs are told from the text of code, requirements and configs; nothing is run. Text shows what a server
    is able to ask for, so a need may be that of a feature that you do not use.
    """
    listed = [row for row in _listed(kind, search_dir) if _is_wanted(row, names or ())]
    unwanted = _needs(without or ())
    listed = [row for row in listed if not unwanted & {need.kind for need in row.all_needs}]
    console = Console()
    if json:
        console.json([_json(row) for row in listed])
    elif why:
        console.data("\n\n".join("\n".join(_why(row)) for row in listed))
    else:
        console.table(HEADER, [_cells(row) for row in listed])
        _tell(console, listed)


def _listed(kind: str | None, search_dir: Sequence[str] | None) -> Iterator[Listed]:
    import os
    from pathlib import Path

    from gymctl.config.needs.catalogue import LISTED, Catalogue
    from gymctl.config.reading.roots import SearchRoots

    wanted = KINDS.get(kind or "", kind)
    if wanted is not None and wanted not in LISTED:
        raise UsageError(f"`{kind}` is no kind of server", hint=f"one of {', '.join(KINDS)}")
    roots = SearchRoots.of(Path.cwd(), os.environ, flags.search_folders(search_dir))
    return Catalogue(roots).listed(LISTED if wanted is None else (wanted,))


def _needs(names: Sequence[str]) -> set[str]:
    from gymctl.config.needs.need import MEANINGS

    found = {part.strip() for name in names for part in name.split(",")}
    unknown = sorted(found - MEANINGS.keys())
    if unknown:
        raise UsageError(
            f"`{unknown[0]}` is no need", where="--without", hint=f"one of {', '.join(MEANINGS)}"
        )
    return found


def _is_wanted(row: Listed, names: Sequence[str]) -> bool:
    from fnmatch import fnmatchcase

    return not names or any(fnmatchcase(row.name, name) for name in names)


def _cells(row: Listed) -> tuple[str, ...]:
    names = [flavour.name for flavour in row.flavours]
    # `mcqa` says itself; `mcqa/hard` is shown as `/hard`.
    shown = [name.removeprefix(row.name) or row.name for name in names[:SHOWN_CONFIGS]]
    more = f" +{len(names) - SHOWN_CONFIGS}" if len(names) > SHOWN_CONFIGS else ""
    kinds = dict.fromkeys(need.kind for need in row.all_needs)
    needs = " ".join(f"{kind}?" if row.is_in_some(kind) else kind for kind in kinds)
    # Configs last: some have names so long that nobody would find what stands behind them.
    return _kind(row), row.name, row.family or "-", needs or "-", " ".join(shown) + more or "-"


def _kind(row: Listed) -> str:
    return next(short for short, kind in KINDS.items() if kind == row.kind)


def _tell(console: Console, listed: Sequence[Listed]) -> None:
    from collections import Counter

    counts = Counter(map(_kind, listed))
    console.say()
    console.say(", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing found")
    if any(row.is_in_some(need.kind) for row in listed for need in row.all_needs):
        console.say("`?`: only some of its configs; --why shows the line behind each need")


def _why(row: Listed) -> Iterator[str]:
    yield f"{_kind(row)} {row.name} · {row.family or 'configs'} · {row.folder}"
    yield from (f"  {_line(need)}" for need in row.needs)
    for flavour in row.flavours:
        yield f"  {flavour.name}"
        yield from (f"    {_line(need)}" for need in flavour.needs)


def _line(need: Need) -> str:
    return f"{need.kind:<9} {need.what} --> {need.where}"


def _json(row: Listed) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "name": row.name,
        "family": row.family,
        "folder": str(row.folder),
        "needs": [_need(need) for need in row.needs],
        "configs": [
            {
                "name": flavour.name,
                "path": str(flavour.path),
                "needs": [_need(need) for need in flavour.needs],
            }
            for flavour in row.flavours
        ],
    }


def _need(need: Need) -> dict[str, Any]:
    return {
        "kind": need.kind,
        "what": need.what,
        "where": str(need.where),
        "certain": need.is_certain,
    }
