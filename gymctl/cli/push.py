"""`gymctl push`: a benchmark and the images of its servers into a registry, every digest read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymctl.cli import packed
from gymctl.cli import selection as flags
from gymctl.cli.amounts import size
from gymctl.cli.output import Console, reporter
from gymctl.counts import counted
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.artefacts.push import Place, PushedBenchmark, PushedImage
    from gymctl.cli.interrupts import Interrupts
    from gymctl.config.sources import Selection

LATEST = "latest"

PlainHttp = Annotated[
    bool,
    typer.Option("--plain-http", help="Talk to the registry without TLS; on this machine that is so anyway."),
]


@dataclass(frozen=True, slots=True)
class _Asked:
    place: Place
    tag: str
    lock: Path
    plain_http: bool
    is_json: bool


Registry = Annotated[
    str, typer.Option("--registry", metavar="HOST[:PORT]/PATH", help="Where it goes.", show_default=False)
]
Tag = Annotated[str, typer.Option("--tag", help="What the benchmark is called there.")]
Lock = Annotated[Path, typer.Option("--lock", metavar="FILE", help="The lock that is told the digests.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be pushed, and do nothing.")]
Json = Annotated[
    bool,
    typer.Option("--json", help="References and digests as JSON: an object, of several benchmarks an array."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the table, warnings and errors.")]


@flags.takes_images()
def command(
    chosen: flags.Chosen,
    registry: Registry,
    tag: Tag = LATEST,
    lock: Lock = Path("images.lock.json"),
    plain_http: PlainHttp = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Push a benchmark: the images of its servers and itself, so that anyone can run it by digest.

    Images that are missing are built. The model is chosen by who runs it, so the small built-in
    model servers come along, and that of --model-type. Credentials are those of `docker login`.
    """
    from gymctl.artefacts.push import Place
    from gymctl.artefacts.reference import is_tag, parse_place
    from gymctl.cli import interrupts
    from gymctl.images.lock import check_place

    place = Place(*parse_place(registry, "--registry"))
    if not is_tag(tag):
        raise UsageError(
            f"`{tag}` is no tag", where="--tag", hint="letters, digits, `_`, `.` and `-`; at most 128"
        )
    if not dry_run:
        check_place(lock)
    console = Console(is_quiet=quiet or json)
    selections = _each(chosen.selection(needs_model=False))
    asked = _Asked(place, tag, lock, plain_http, json)

    async def main(signals: Interrupts) -> None:
        found: list[dict[str, Any]] = []
        for selection in selections:
            push = _dry_run if dry_run else _push
            found.append(await push(selection, asked, console))
        if json:
            console.json(found[0] if len(found) == 1 else found)

    interrupts.run(main, console.insist)


def _each(selection: Selection) -> list[Selection]:
    """One benchmark each, where several are named; config files belong together."""
    is_plain = not (selection.config or selection.environment or selection.resources_server)
    if is_plain and len(selection.benchmark) > 1:
        return [replace(selection, benchmark=(name,)) for name in selection.benchmark]
    return [selection]


async def _push(selection: Selection, asked: _Asked, console: Console) -> dict[str, Any]:
    import asyncio

    from gymctl.artefacts import content as contents
    from gymctl.artefacts.made import made
    from gymctl.artefacts.push import check_engine, push_benchmark, push_images, unpushed
    from gymctl.artefacts.registry import Registry
    from gymctl.config.load import load
    from gymctl.engine import Engine
    from gymctl.images.locking import update

    telling = reporter(console)
    config = load(replace(selection, model_type=None))
    engine = await asyncio.to_thread(Engine.connect, config.settings.build.platform)
    async with Registry(asked.place.host, plain_http=asked.plain_http) as registry:
        await registry.greet()  # a login that is missing is told before anything is built
        await check_engine(asked.place, engine)
        ready = await made(config, selection, engine, telling)
        images = [unpushed(image) for image in ready.lock.images]
        pushed = await push_images(images, asked.place, engine, registry, telling)
        lock = ready.lock.with_images(one.image for one in pushed)
        content = contents.relocked(ready.content, lock)
        benchmark = await push_benchmark(content, asked.place, asked.tag, registry)
    update(asked.lock, lock)
    if not asked.is_json:
        _show(pushed, benchmark, content.name, console)
    console.say()
    if benchmark.moved_from is not None:
        console.say(f"{asked.tag} named {benchmark.moved_from[:19]}… before")
    count = len(pushed) + 1
    console.say(f"read back: {count} of {count} digests match · {asked.lock} updated")
    console.say(f"anyone can run it: {packed.command(str(benchmark.reference), content.manifest.model, {})}")
    return _json(pushed, benchmark)


def _show(pushed: list[PushedImage], benchmark: PushedBenchmark, name: str, console: Console) -> None:
    header = ("IMAGE", "PLATFORM", "SIZE", "SENT", "DIGEST", "SBOM")
    rows = [
        (
            one.image.repository.rsplit("/", 1)[-1],
            one.image.platform,
            size(one.image.size),
            size(one.sent),
            f"{(one.image.digest or '')[:19]}…",
            "yes" if one.has_sbom else "no",
        )
        for one in pushed
    ]
    digest = f"{(benchmark.reference.digest or '')[:19]}…"
    console.table(
        header, [*rows, (name, "benchmark", size(benchmark.size), size(benchmark.sent), digest, "–")]
    )


def _json(pushed: list[PushedImage], benchmark: PushedBenchmark) -> dict[str, Any]:
    return {
        "benchmark": {
            "reference": str(benchmark.reference),
            "digest": benchmark.reference.digest,
            "size": benchmark.size,
            "sent": benchmark.sent,
            "moved_from": benchmark.moved_from,
        },
        "images": [
            {**one.image.model_dump(), "sent": one.sent, "sbom": one.has_sbom, "pinned": one.image.pinned}
            for one in pushed
        ],
    }


async def _dry_run(selection: Selection, asked: _Asked, console: Console) -> dict[str, Any]:
    """The commands, from the configuration alone."""
    import asyncio

    from gymctl.artefacts.content import relocked
    from gymctl.artefacts.made import gathered
    from gymctl.config.load import load
    from gymctl.images.lock import Lock
    from gymctl.images.plan import BaseImage
    from gymctl.images.project import Pythons

    config = load(replace(selection, model_type=None))
    found = await asyncio.to_thread(gathered, config, selection)
    found.tell_of_links(reporter(console))
    unknown = BaseImage("unknown", "")  # the names of images do not depend on it
    plans = await asyncio.to_thread(found.plans, Pythons(unknown, unknown))
    names = dict.fromkeys(plan.repository.rsplit("/", 1)[-1] for plan in plans)
    images = [f"{asked.place.host}/{asked.place.path(name)}" for name in names]
    content = relocked(found.content, Lock())
    total = sum(item.size for item in content.files.values())
    reference = f"{asked.place.host}/{asked.place.path(content.name)}:{asked.tag}"
    if not asked.is_json:
        console.say("would build images that are missing, attach an SBOM to each, and run")
        for image in images:
            console.data(f"docker push {image}:<hash of its inputs>")
        files = counted(len(content.files), "file")
        console.say(f"and send {files} ({size(total)}) as {reference}")
    return {
        "benchmark": {"reference": reference, "files": len(content.files), "size": total},
        "images": [{"repository": image} for image in images],
    }
