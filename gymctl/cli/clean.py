"""`gymctl clean`: removes what projects left and images that nothing needs; shows them first, and asks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import removal
from gymctl.cli.output import Console
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.cli.removal import Candidate
    from gymctl.engine import Engine


def command(
    projects: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROJECT]...", help="Only what these left, and no images.", show_default=False
        ),
    ] = None,
    all_images: Annotated[
        bool, typer.Option("--all-images", help="Every image of gymctl's that no container uses.")
    ] = False,
    dry_run: removal.DryRun = False,
    yes: removal.Yes = False,
    json: common.JsonForTable = False,
) -> None:
    """Remove what dead projects left, and images that nothing needs. Shows it first, and asks.

    Projects that are up, volumes, and what gymctl did not make stay as they are.
    """
    if projects and all_images:
        raise UsageError("--all-images and a project's name exclude each other")
    from gymctl import engine

    console = Console()
    only = projects or ()
    console.transient("looking")
    connected = engine.Engine.connect() if engine.answers() else None
    if connected is None:
        console.insist("no Docker engine answers: containers, networks and images are not looked at")
    if only:
        _check_names(only, connected)
    found = list(_found(connected, only, all_images=all_images))
    console.clear_line()
    removal.run(console, found, dry_run=dry_run, yes=yes, is_json=json)


def _check_names(named: Collection[str], engine: Engine | None) -> None:
    """Raises UsageError: nothing is known of a project that is called so."""
    from pathlib import Path

    from gymctl.config.names import suggestion
    from gymctl.runtime import leftovers

    known = leftovers.known(Path.cwd(), engine)
    for name in named:
        if name not in known:
            hint = suggestion(name, known, noun="there are") or "no project has left anything here"
            raise UsageError(f"no project `{name}` is known here", hint=hint)


def _found(engine: Engine | None, only: Collection[str], *, all_images: bool) -> Iterator[Candidate]:
    """Containers before their networks, both before the folder that tells of them."""
    from functools import partial
    from pathlib import Path

    from gymctl.cli.removal import Candidate
    from gymctl.images import scratch
    from gymctl.runtime import leftovers

    if engine is not None:
        left = leftovers.of_engine(engine, only)
        for one in left.containers:
            act = partial(leftovers.remove_container, one, engine)
            yield Candidate("container", one.name, f"{one.project} is not up", None, act)
        for net in left.networks:
            act = partial(leftovers.remove_network, net, engine)
            yield Candidate("network", net.name, f"{net.project} is not up", None, act)
    for folder in leftovers.of_folder(Path.cwd(), only).folders:
        act = partial(leftovers.remove_folder, folder)
        name = str(folder.path.relative_to(Path.cwd()))
        is_aside = scratch.discarded(folder.path) is not None
        why = "a removal that was stopped" if is_aside else f"{folder.path.name} is not up"
        yield Candidate("folder", name, why, folder.size, act)
    if only:
        return
    for folder in leftovers.of_builds(Path.cwd()).folders:
        act = partial(leftovers.remove_folder, folder)
        yield Candidate("folder", str(folder.path), "a command that was killed", folder.size, act)
    for folder in leftovers.of_prepares(engine).folders:
        act = partial(leftovers.remove_prepare, folder, engine)
        yield Candidate("folder", str(folder.path), "a prepare script that was killed", folder.size, act)
    if engine is not None:
        yield from _images(engine, all_images=all_images)


def _images(engine: Engine, *, all_images: bool) -> Iterator[Candidate]:
    from functools import partial
    from pathlib import Path

    from gymctl.cli.removal import Candidate
    from gymctl.images import unused

    kept = unused.locked(Path.cwd())
    held = unused.held(engine)
    for image, name in unused.of_killed_checks(held):
        size = image.own_size if image.tags == (name,) else None
        yield Candidate(
            "name", name, "a check that was killed", size, partial(unused.remove_name, name, engine)
        )
    for one in unused.unused(held, kept, all_images=all_images):
        name = next(iter((*one.image.tags, *one.image.digests)), one.image.id.removeprefix("sha256:")[:12])
        act = partial(unused.remove, one.image, engine)
        yield Candidate("image", name, one.why, one.image.own_size, act)
