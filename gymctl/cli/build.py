"""`gymctl build`: the images of benchmarks or servers, and the lock that names them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import amounts
from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.output import Console, reporter
from gymctl.counts import counted
from gymctl.errors import EngineError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymctl.cli.interrupts import Interrupts
    from gymctl.config.model import Config
    from gymctl.engine import Engine
    from gymctl.images.build import Made
    from gymctl.images.lock import Lock
    from gymctl.images.plan import ImagePlan
    from gymctl.images.selection import ServerFolder


@dataclass(frozen=True, slots=True)
class Asked:
    """What the flags say."""

    lock: Path
    platform: str | None
    is_fresh: bool
    is_checked: bool
    is_json: bool
    sboms: Path | None = None
    """The folder for an SBOM of each image."""


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BENCHMARK|SERVER|FILE.yaml|+KEY=VALUE",
        help="Benchmarks, servers (`weather`, `resources_servers/weather`), config files, overrides.",
        show_default=False,
    ),
]


NoCache = Annotated[bool, typer.Option("--no-cache", help="Run every step again.")]
Platform = Annotated[
    str | None,
    typer.Option("--platform", metavar="linux/amd64|linux/arm64", help="Default: the engine's own."),
]
CheckReproducible = Annotated[
    bool,
    typer.Option(
        "--check-reproducible", help="Build twice; another id is an error that names the files (exit 9)."
    ),
]
LockOption = Annotated[
    Path, typer.Option("--lock", metavar="FILE", help="The lock file that is written or updated.")
]
Sbom = Annotated[
    Path | None,
    typer.Option("--sbom", metavar="DIR", help="Write what is in each image to <name>.cdx.json here."),
]
LockRequirements = Annotated[
    bool,
    typer.Option(
        "--lock-requirements",
        help="Build nothing; write requirements.lock, with hashes, into the folders of these servers.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a line for each image.")]


@flags.takes_images(Words)
def command(
    chosen: flags.Chosen,
    no_cache: NoCache = False,
    platform: Platform = None,
    check_reproducible: CheckReproducible = False,
    lock: LockOption = Path("images.lock.json"),
    sbom: Sbom = None,
    lock_requirements: LockRequirements = False,
    json: Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Build the images of benchmarks, and write images.lock.json for `up --locked` and `eval --locked`.

    A name that is no benchmark may be that of a server: `weather`, `resources_servers/weather`. With a
    benchmark come the model server of --model-type and all built-in ones that are small.
    """
    from gymctl.cli import interrupts
    from gymctl.images import platforms
    from gymctl.images.lock import check_place

    if not lock_requirements:
        check_place(lock)
    console = Console(is_quiet=quiet)
    asked = Asked(lock, platforms.chosen(platform), no_cache, check_reproducible, json, sbom)
    config = _config(chosen, console, with_models=not lock_requirements)

    async def main(_: Interrupts) -> None:
        if lock_requirements:
            await _lock_requirements(config, console, is_json=json)
        else:
            await _Build(asked, config, console).run()

    interrupts.run(main, console.insist)


def _config(chosen: flags.Chosen, console: Console, *, with_models: bool) -> Config:
    """What is selected, as the servers whose images are wanted. with_models: also those that nobody named."""
    from gymctl.config.load import load
    from gymctl.images import selection as images

    chosen, servers = _without_servers(chosen)
    selected = replace(chosen.selection(needs_model=False), is_placeholder_told=False)
    is_config = flags.names_a_config(selected) or not servers
    if not is_config:
        # env.yaml (`build`) counts for servers alone too, and a configuration has to start something.
        nothing = "+images.responses_api_models.openai_model.entrypoint=app.py"
        selected = replace(selected, overrides=(*selected.overrides, nothing))
    config = load(selected)
    for warning in config.warnings:
        console.insist(f"warning: {warning}")
    if not is_config:
        return images.with_images_of(replace(config, servers={}), servers)
    return images.with_images_of(config, [*servers, *(images.model_servers() if with_models else ())])


def _without_servers(chosen: flags.Chosen) -> tuple[flags.Chosen, list[ServerFolder]]:
    """The words that name no benchmark but servers, taken out."""
    import os

    from gymctl.config.reading import selectors
    from gymctl.config.reading.roots import SearchRoots
    from gymctl.images.selection import named

    tokens: list[str] = list(chosen.given.get("tokens") or ())
    folders = flags.search_folders(chosen.given.get("search_dir"))
    roots = SearchRoots.of(Path.cwd(), os.environ, folders)
    servers: list[ServerFolder] = []
    for word in flags.sort_tokens(tokens)[2]:
        is_benchmark = any(roots.find_all(path) for path in selectors.BENCHMARK.paths(word))
        if not is_benchmark and (found := named(word, roots)):
            servers += found
            tokens.remove(word)
    return flags.Chosen({**chosen.given, "tokens": tokens}), servers


async def _lock_requirements(config: Config, console: Console, *, is_json: bool) -> None:
    from gymctl.images import requirements
    from gymctl.images.selection import is_ours_to_lock

    theirs = sorted({one.implementation for one in config.servers.values() if one.family == "nemo_gym"})
    if theirs:
        console.insist(f"warning: folders of NeMo Gym's own are not locked: {', '.join(theirs)}")
    folders = {block.folder.resolve(): block for block in config.servers.values() if is_ours_to_lock(block)}
    locked: dict[str, int] = {}
    for folder, block in folders.items():
        console.transient(f"locking {block.implementation}")
        count = await requirements.write(folder, config.settings.build)
        if count is not None:
            locked[str(folder / requirements.FILE)] = count
    if is_json:
        console.json([{"file": file, "packages": count} for file, count in locked.items()])
        return
    for file, count in locked.items():
        console.data(f"{file}  {counted(count, 'package')}")
    if not locked and not theirs:
        console.say("these servers add no packages to the base")


@dataclass
class _Build:
    asked: Asked
    config: Config
    console: Console
    width: int = 0
    seconds: dict[str, float | None] = field(default_factory=dict)
    """By tag: how long its build took, None when it was there."""

    async def run(self) -> None:
        import asyncio

        from gymctl.images import build, reproducible
        from gymctl.images.locking import lock_of, update

        engine = await self._engine()
        told = reporter(self.console)
        plans = await build.plan_all(self.config, engine, told)
        self.width = max(len(plan.source) for plan in plans)
        settings = self.config.settings.build
        try:
            await build.make(
                plans,
                engine,
                told,
                settings,
                done=lambda made: self._show(made, engine),
                is_fresh=self.asked.is_fresh,
            )
        except (EngineError, IntegrityError):
            await asyncio.to_thread(self._tell_doubts, plans)
            await asyncio.to_thread(self._lock_what_is_there, plans, engine)
            raise
        await asyncio.to_thread(self._tell_doubts, plans)
        made = await asyncio.to_thread(lock_of, plans, engine)
        if self.asked.is_checked:
            await reproducible.check(plans, engine, told, settings)
        update(self.asked.lock, made)
        if self.asked.sboms is not None:
            await self._write_sboms(made, engine, self.asked.sboms)
        self._finish(made)

    def _tell_doubts(self, plans: Sequence[ImagePlan]) -> None:
        """About what was built now. Blocking."""
        from gymctl.images import planted

        built = [tag for tag, seconds in self.seconds.items() if seconds is not None]
        planted.tell(plans, built, self.config.secrets, self.console.insist)

    def _lock_what_is_there(self, plans: Sequence[ImagePlan], engine: Engine) -> None:
        """After a failure. Blocking."""
        from gymctl.images.locking import lock_of, update

        there = [plan for plan in plans if plan.tag in self.seconds]
        if there:
            update(self.asked.lock, lock_of(there, engine))
        count = counted(len(self.seconds), "image that is", "images that are")
        told = f"names the {count} there" if there else "was not written"
        self.console.say(f"{self.asked.lock} {told}")

    async def _write_sboms(self, lock: Lock, engine: Engine, folder: Path) -> None:
        from gymctl.images.sbom import sboms

        self.console.transient(f"  looking into {counted(len(lock.images), 'image')}")
        files = await sboms(engine, lock.images, folder)
        self.console.say(f"{folder} has {counted(len(files), 'SBOM')}")

    async def _engine(self) -> Engine:
        import asyncio

        from gymctl.engine import Engine
        from gymctl.images import platforms

        engine = await asyncio.to_thread(
            Engine.connect, self.asked.platform or self.config.settings.build.platform
        )
        warning = await platforms.check(engine)
        if warning is not None:
            self.console.insist(f"warning: {warning}")
        if not engine.facts.builds_reproducibly:
            version = engine.facts.version
            self.console.insist(
                f"warning: Docker Engine {version} gives each build another id; 23 and later do not"
            )
        return engine

    def _show(self, made: Made, engine: Engine) -> None:
        plan, took = made.plan, "there already" if made.seconds is None else f"{made.seconds:.1f} s"
        self.seconds[plan.tag] = made.seconds
        if not self.asked.is_json and not self.console.is_quiet:
            size = amounts.size(engine.api.api.inspect_image(plan.tag)["Size"])
            self.console.data(f"{plan.source:<{self.width}}  {plan.tag}  {size:>9}  {took}")

    def _finish(self, made: Lock) -> None:
        total = len(self.seconds)
        if self.asked.is_json:
            checked = {"reproducible": total} if self.asked.is_checked else {}
            rows = [
                {**image.model_dump(), "seconds": self.seconds[f"{image.repository}:{image.tag}"]}
                for image in made.images
            ]
            self.console.json({"lock": str(self.asked.lock), **checked, "images": rows})
        elif self.asked.is_checked and not self.console.is_quiet:
            self.console.data(f"reproducible: {total} of {counted(total, 'image')}, same id twice")
        self.console.say(f"{self.asked.lock} names {'this image' if total == 1 else f'these {total} images'}")
