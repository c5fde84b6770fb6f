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
from gymctl.images.plan import ImagePlan, plan_server
from gymctl.images.progress import Reporter
from gymctl.images.project import Pythons, needs_nemo_gym, plan_project
from gymctl.images.selection import model_servers

_NAMED = 3


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
    # Before anything is built: what cannot travel is told within a second.
    found = await asyncio.to_thread(gathered, config, selection, extra)
    config, content = found.config, found.content
    _tell_of_rows(config, reporter)
    found.tell_of_links(reporter)
    ours = await base_image.choose(config, engine, reporter)
    newer = await base_image.choose_for_nemo_gym(config, engine, reporter) if needs_nemo_gym(config) else None
    plans = await asyncio.to_thread(found.plans, Pythons(ours, newer))
    built = await make(plans, engine, reporter, config.settings.build)
    await asyncio.to_thread(planted.tell, plans, built, config.secrets, reporter.note)
    reporter.step("images", f"{len(plans)} in use, {f'{len(built)} built' if built else 'all there'}")
    lock = await asyncio.to_thread(lock_of, plans, engine)
    return Made(relocked(content, lock), lock)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What travels, before an engine was asked."""

    config: Config
    """Without what stands in for a model that nobody chose."""
    content: Content
    models: Mapping[str, Path]
    """Folders of the model servers that come along, by place."""

    def plans(self, pythons: Pythons) -> list[ImagePlan]:
        """All images, the base first. Reads files."""
        plans = plan_project(self.config, pythons)
        base = plans[0].tag
        return plans + [plan_server(one, MODELS, one.name, base) for one in self.models.values()]

    def tell_of_links(self, reporter: Reporter) -> None:
        """A folder that came from somebody else may hold a link to a file of its user's."""
        roots = self.config.search_roots
        real = [root.resolve() for root in roots]
        led_out = [
            place
            for place, item in self.content.files.items()
            if item.path is not None
            and any(item.path.is_relative_to(root) for root in roots)
            and not any(item.path.resolve().is_relative_to(root) for root in real)
        ]
        if led_out:
            more = f" and {len(led_out) - _NAMED:,} more" if len(led_out) > _NAMED else ""
            named = ", ".join(led_out[:_NAMED])
            reporter.note(
                f"warning: links lead out of the search roots; what is there travels: {named}{more}"
            )


def gathered(config: Config, selection: Selection, extra: Mapping[str, Path] | None = None) -> Gathered:
    """As `made`, with nothing built. Raises what `gather` does."""
    servers = {name: block for name, block in config.servers.items() if block.implementation != DUMMY}
    config = replace(config, servers=servers)
    models = {**dict(models_that_travel(config)), **dict(_named_model(config, selection))}
    return Gathered(config, gather(config, selection, models=models, extra=extra), models)


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
    """The server of --model-type, when the config was loaded without it. Raises UsageError: nobody who runs
    the benchmark could choose it."""
    if selection.model_type is None:
        return
    path, _ = selectors.resolve(selectors.MODEL_TYPE, selection.model_type, SearchRoots(config.search_roots))
    folder = path.parents[1]
    own = config.servers.get(POLICY)
    if own is not None and own.implementation != folder.name:
        raise UsageError(
            f"the benchmark has a model server of its own, {own.implementation}",
            where=f"--model-type {selection.model_type}",
            hint="leave --model-type out; `weather/live` is an example of one that leaves the choice",
        )
    if own is not None:
        return
    if family_of(folder, "app.py") != "gymctl":
        raise UsageError(
            f"the model server {folder.name} is NeMo Gym's own, and cannot come along beside a benchmark",
            where="--model-type",
            hint="include its configuration in the benchmark's own",
        )
    yield f"{MODELS}/{folder.name}", folder
