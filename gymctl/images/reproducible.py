"""Builds images a second time and tells what differs: whether an id says what is in an image, for anyone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gymctl.config.model import BuildSettings
from gymctl.counts import counted
from gymctl.engine import Engine
from gymctl.errors import IntegrityError
from gymctl.images import scratch
from gymctl.images.build import make
from gymctl.images.differences import differences
from gymctl.images.lock import short
from gymctl.images.plan import AGAIN, ImagePlan
from gymctl.images.progress import Reporter

MAX_FILES = 12


async def check(
    plans: Sequence[ImagePlan], engine: Engine, reporter: Reporter, settings: BuildSettings
) -> None:
    """Build each of `plans`, which are there, once more without the cache; its second image is removed.

    Raises IntegrityError: which images got another id, and in which step by which files.
    """
    distinct = list({plan.tag: plan for plan in plans}.values())
    # Each on the first build of what it stands on: a difference is then told where it arises.
    mark = secrets.token_hex(4)
    again = {
        plan.tag: replace(plan, repository=f"{AGAIN}{mark}-{number}") for number, plan in enumerate(distinct)
    }
    with scratch.folder(f"{scratch.CHECK}{mark}-"):
        told = await _differing(distinct, again, engine, reporter, settings)
    if told:
        raise _refusal(told, len(distinct))


async def _differing(
    distinct: Sequence[ImagePlan],
    again: Mapping[str, ImagePlan],
    engine: Engine,
    reporter: Reporter,
    settings: BuildSettings,
) -> list[tuple[ImagePlan, list[str]]]:
    """Those that got another id, with what differs. `again`: the second plans, by the first one's tag."""
    try:
        await make(list(again.values()), engine, reporter, settings, is_fresh=True)
        told: list[tuple[ImagePlan, list[str]]] = []
        for plan in distinct:
            reporter.progress(f"comparing {plan.source}")
            lines = await _compared(plan, again[plan.tag], engine)
            if lines:
                told.append((plan, lines))
    finally:
        await asyncio.shield(_removed([plan.tag for plan in again.values()], engine))
    return told


async def _compared(plan: ImagePlan, second: ImagePlan, engine: Engine) -> list[str]:
    """Nothing when both have one id, else the lines that tell what differs."""
    first_id = await asyncio.to_thread(engine.image_id, plan.tag)
    second_id = await asyncio.to_thread(engine.image_id, second.tag)
    if first_id == second_id:
        return []
    with scratch.folder(scratch.COMPARED) as folder:
        files = folder / "first.tar", folder / "second.tar"
        for tag, file in zip((plan.tag, second.tag), files, strict=True):
            (await engine.run("save", "--output", str(file), tag)).check(f"{plan.source} cannot be compared")
        layers = await asyncio.to_thread(differences, *files)
    lines = [f"{plan.source}: {short(first_id)} and {short(second_id)}"]
    for layer in layers:
        lines.append(f"  {layer.step[:100]}")
        lines += [f"    {line}" for line in layer.files[:MAX_FILES]]
        if len(layer.files) > MAX_FILES:
            lines.append(f"    and {len(layer.files) - MAX_FILES} more")
    return lines


def _refusal(told: Sequence[tuple[ImagePlan, list[str]]], total: int) -> IntegrityError:
    names = ", ".join(plan.source for plan, _ in told)
    return IntegrityError(
        f"not reproducible: {len(told)} of {counted(total, 'image')} got another id when built again: "
        f"{names}",
        details=[line for _, lines in told for line in lines],
        hint="docs/images.md says what keeps the time of day out of a Dockerfile of your own",
    )


async def _removed(tags: Sequence[str], engine: Engine) -> None:
    """The second images; where they are the first under another name, only the name."""
    held = [tag for tag in tags if await asyncio.to_thread(engine.image_id, tag) is not None]
    if held:
        await engine.run("image", "rm", *held)
