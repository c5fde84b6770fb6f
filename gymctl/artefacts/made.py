"""A benchmark made ready to travel: its images built, its files gathered, one lock over both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gymctl.artefacts.content import Content, relocked
from gymctl.artefacts.gather import SPLIT, gather
from gymctl.config.families import family_of
from gymctl.config.model import Config
from gymctl.config.policy import POLICY
from gymctl.config.reading import selectors
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.shaping.standins import DUMMY, MODELS
from gymctl.config.sources import Selection
from gymctl.engine import Engine
from gymctl.errors import UsageError
from gymctl.images import base as base_image
from gymctl.images import planted
from gymctl.images.build import make
from gymctl.images.lock import Lock
from gymctl.images.locking import lock_of
from gymctl.images.plan import plan_server
from gymctl.images.progress import Reporter
from gymctl.images.project import Pythons, needs_nemo_gym, plan_project
from gymctl.images.selection import model_servers


@dataclass(frozen=True, slots=True)
class Made:
    content: Content
    lock: Lock


async def made(
    config: Config,
    selection: Selection,
    engine: Engine,
    reporter: Reporter,
    *,
    extra: Mapping[str, Path] | None = None,
) -> Made:
    """Gather a benchmark's files (see `gather`), and build what is missing of its images.

    `config` is loaded from `selection` with `needs_model=False`. Who runs the benchmark chooses the model, so
    besides the one that `config` has, every built-in model server comes along that is small, and the
    one that `selection` names.
    """
    servers = {name: block for name, block in config.servers.items() if block.implementation != DUMMY}
    config = replace(config, servers=servers)
    models = {**dict(models_that_travel(config)), **dict(_named_model(config, selection))}
    # Before anything is built: what cannot travel is told within a second.
    content = await asyncio.to_thread(lambda: gather(config, selection, models=models, extra=extra))
    _tell_of_rows(config, reporter)
    ours = await base_image.choose(config, engine, reporter)
    newer = await base_image.choose_for_nemo_gym(config, engine, reporter) if needs_nemo_gym(config) else None
    plans = await asyncio.to_thread(plan_project, config, Pythons(ours, newer))
    for folder in models.values():
        plans.append(await asyncio.to_thread(plan_server, folder, MODELS, folder.name, plans[0].tag))
    built = await make(plans, engine, reporter, config.settings.build)
    await asyncio.to_thread(planted.tell, plans, built, config.secrets, reporter.note)
    reporter.step("images", f"{len(plans)} in use, {f'{len(built)} built' if built else 'all there'}")
    lock = await asyncio.to_thread(lock_of, plans, engine)
    return Made(relocked(content, lock), lock)


def _tell_of_rows(config: Config, reporter: Reporter) -> None:
    """Who runs it gets rows of type `benchmark` without asking: others have to be asked for."""
    held = [dataset for dataset in config.datasets if dataset.path is not None]
    if not held:
        reporter.note(
            "warning: the benchmark brings no rows, so whoever runs it needs --input FILE; "
            f"a `datasets` entry of type `{SPLIT}` in its configuration would bring them (docs/datasets.md)"
        )
    elif SPLIT not in {dataset.type for dataset in held}:
        what = f"warning: its rows are of no type `{SPLIT}`, so whoever runs it has to name them"
        reporter.note(f"{what}: --input {held[0].jsonl_fpath}")


def models_that_travel(config: Config) -> Iterator[tuple[str, Path]]:
    """Built-in model servers, by place, that the config does not have itself."""
    own = {block.implementation for block in config.servers.values() if block.kind == MODELS}
    yield from ((one.place, one.folder) for one in model_servers() if one.implementation not in own)


def _named_model(config: Config, selection: Selection) -> Iterator[tuple[str, Path]]:
    """The server of --model-type, when the config was loaded without it."""
    if selection.model_type is None or config.servers.keys() & {POLICY}:
        return
    path, _ = selectors.resolve(selectors.MODEL_TYPE, selection.model_type, SearchRoots(config.search_roots))
    folder = path.parents[1]
    if family_of(folder, "app.py") != "gymctl":
        raise UsageError(
            f"the model server {folder.name} is NeMo Gym's own, and cannot come along beside a benchmark",
            where="--model-type",
            hint="include its configuration in the benchmark's own",
        )
    yield f"{MODELS}/{folder.name}", folder
