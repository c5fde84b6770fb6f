"""Makes sure that every image of a config exists: one look-up for all, then only what is missing is built."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gymctl.config.model import BuildSettings, Config
from gymctl.engine import Engine
from gymctl.errors import EngineError, GymctlError, IntegrityError
from gymctl.images import base as base_image
from gymctl.images import mismatch, planted, requirements, scratch
from gymctl.images.context import FIXED_TIME, Context
from gymctl.images.failure import explain, step_output, without_mounts
from gymctl.images.lock import Lock
from gymctl.images.locking import lock_of
from gymctl.images.nemo_gym import unused_locks
from gymctl.images.plan import LABEL_INPUTS, ImagePlan
from gymctl.images.progress import Reporter
from gymctl.images.project import Pythons, by_server, needs_nemo_gym, plan_project
from gymctl.images.secrets import BuildSecrets
from gymctl.programs import Finished

PARALLEL_BUILDS = 4
"""BuildKit shares its work among builds; beyond this only the output gets harder to follow."""
KEPT_LINES = 5000
"""Of a build's log. What failed is named at the beginning of an output that may be long."""


@dataclass(frozen=True, slots=True)
class Images:
    """The image of every server instance, and the base's, which is also the head's."""

    base: str
    by_server: Mapping[str, str]
    built: tuple[str, ...] = ()
    """Tags that this call had to build; empty on a warm start."""
    lock: Lock = field(default_factory=Lock)
    """What they are, and what they stand on."""

    def __getitem__(self, server: str) -> str:
        return self.by_server[server]


@dataclass(frozen=True, slots=True)
class Made:
    """One image that is there now."""

    plan: ImagePlan
    seconds: float | None
    """How long its build took; None when it was there already."""


def _nobody(made: Made) -> None:
    """Nobody wants to know."""


async def ensure(config: Config, engine: Engine, reporter: Reporter) -> Images:
    """The images of `config`, built where they are missing: base first, then servers side by side.

    When one server's build fails the others are still built; then EngineError names the failed ones with the
    lines that matter, or IntegrityError where a package has another hash than its lock names. Cancellation
    ends running builds and leaves no image behind that is not complete.
    """
    plans = await plan_all(config, engine, reporter)
    built = await make(plans, engine, reporter, config.settings.build)
    known = await asyncio.to_thread(lock_of, plans, engine)
    await asyncio.to_thread(_tell, plans, built, config.secrets, reporter)
    return Images(plans[0].tag, by_server(plans), built, known)


def _tell(
    plans: Sequence[ImagePlan], built: Sequence[str], secrets: Collection[str], reporter: Reporter
) -> None:
    by_tag = {plan.tag: plan for plan in plans}
    new = [by_tag[tag] for tag in built]
    planted.tell(plans, built, secrets, reporter.note)
    size = sum(plan.context.size for plan in new)
    made = f"{len(new)} built from {max(size // 1000, 1):,} kB of files" if new else "all there"
    reporter.step("images", f"{len(by_tag)} in use, {made}")


async def plan_all(config: Config, engine: Engine, reporter: Reporter) -> list[ImagePlan]:
    """All images of `config`, each before what stands on it. Pulls or makes the Python image if need be."""
    reporter.progress("looking at images")
    ours = await base_image.choose(config, engine, reporter)
    newer = await base_image.choose_for_nemo_gym(config, engine, reporter) if needs_nemo_gym(config) else None
    for file in unused_locks(config):
        reporter.note(f"warning: {file} is not used: packages of NeMo Gym's own folders are not locked")
    return await asyncio.to_thread(plan_project, config, Pythons(ours, newer))


async def make(
    plans: Sequence[ImagePlan],
    engine: Engine,
    reporter: Reporter,
    settings: BuildSettings,
    *,
    done: Callable[[Made], None] = _nobody,
    is_fresh: bool = False,
) -> tuple[str, ...]:
    """Build those of `plans` that are missing, as `ensure` does. Returns their tags.

    done: told of each image when it is there. is_fresh: all of them are built, and every step is run.
    """
    present = {} if is_fresh else await asyncio.to_thread(existing, engine)
    # By tag: two folders with the same name and content are one image.
    wanted = {plan.tag: plan for plan in plans}
    missing = [plan for tag, plan in wanted.items() if present.get(tag) != plan.inputs]
    for plan in wanted.values():
        if plan not in missing:
            done(Made(plan, None))
    if missing:
        with scratch.folder() as folder:
            secrets = BuildSecrets.of(os.environ, settings)
            builder = _Builder(engine, secrets, folder, reporter, done, is_fresh=is_fresh)
            await builder.build_all(missing)
    return tuple(plan.tag for plan in missing)


def existing(engine: Engine) -> dict[str, str]:
    """Tag -> inputs hash of every image that gymctl built: one call, however many there are."""
    # The low-level list: docker-py's `images.list()` inspects every image it finds.
    found = engine.api.api.images(filters={"label": LABEL_INPUTS})
    return {tag: image["Labels"][LABEL_INPUTS] for image in found for tag in image.get("RepoTags") or ()}


class _Builder:
    """Builds planned images; `folder` is private to this user and removed by the caller whatever happens."""

    def __init__(
        self,
        engine: Engine,
        secrets: BuildSecrets,
        folder: Path,
        reporter: Reporter,
        done: Callable[[Made], None],
        *,
        is_fresh: bool,
    ) -> None:
        self._engine = engine
        self._secrets = secrets
        self._folder = folder
        self._reporter = reporter
        self._done = done
        self._is_fresh = is_fresh
        self._slots = asyncio.Semaphore(PARALLEL_BUILDS)

    async def build_all(self, missing: Sequence[ImagePlan]) -> None:
        with self._secrets.options(self._folder) as options:
            for plan in (plan for plan in missing if plan.kind == "base"):
                await self._build(plan, options)
            failures: list[GymctlError] = []
            async with asyncio.TaskGroup() as builds:
                for plan in (plan for plan in missing if plan.kind == "server"):
                    builds.create_task(self._attempt(plan, options, failures))
        if failures:
            raise _combined(failures)

    async def _attempt(self, plan: ImagePlan, options: Sequence[str], failures: list[GymctlError]) -> None:
        async with self._slots:
            try:
                await self._build(plan, options)
            except GymctlError as error:
                failures.append(error)

    async def _build(self, plan: ImagePlan, options: Sequence[str]) -> None:
        place = self._folder / re.sub(r"[/:]", "_", plan.tag)
        context, dockerfile = place / "context", place / "Dockerfile"
        staging = asyncio.ensure_future(asyncio.to_thread(_stage, plan, context, dockerfile))
        try:
            await asyncio.shield(staging)
        except asyncio.CancelledError:
            await asyncio.wait([staging])  # else the thread writes into the folder while it is removed
            raise
        self._reporter.progress(f"building {plan.source}")
        began = time.monotonic()
        finished = await self._engine.run(
            *command(plan, self._engine, dockerfile, [*options, str(context)], is_fresh=self._is_fresh),
            on_line=lambda line: self._show(plan, line),
            # Attestations would write the build's parameters beside the image. buildx leaves files in its
            # temporary folder: this one goes when the build is over.
            environ={"BUILDX_NO_DEFAULT_ATTESTATIONS": "1", "TMPDIR": str(place)},
            secrets=self._secrets.values,
            keep_lines=KEPT_LINES,
        )
        if finished.exit_code != 0:
            raise _failure(plan, finished)
        self._done(Made(plan, time.monotonic() - began))

    def _show(self, plan: ImagePlan, line: str) -> None:
        if " [" in line and "] " in line:  # `#7 [3/5] RUN ...`: the start of a step
            step = without_mounts(line.partition("] ")[2])
            self._reporter.progress(f"building {plan.source}: {step[:60]}")


def command(
    plan: ImagePlan, engine: Engine, dockerfile: Path, rest: Sequence[str], *, is_fresh: bool = False
) -> list[str]:
    """The arguments of `docker` that build `plan`; `rest` holds secrets (as files) and the context."""
    return [
        *("buildx", "build", "--builder", engine.builder, "--load", "--progress", "plain"),
        *("--file", str(dockerfile), "--tag", plan.tag, "--platform", engine.platform),
        *(("--no-cache",) if is_fresh else ()),
        *("--build-arg", f"BASE_IMAGE={plan.parent}", "--build-arg", f"SOURCE_DATE_EPOCH={FIXED_TIME}"),
        *(part for key, value in plan.labels.items() for part in ("--label", f"{key}={value}")),
        *rest,
    ]


def _stage(plan: ImagePlan, context: Path, dockerfile: Path) -> None:
    """Copy the context and check that it is still what was planned: a tag must never name other content."""
    try:
        plan.context.copy_to(context)
        staged = Context({place: context / place for place in plan.context.files}).digest()
    except OSError as error:
        raise EngineError(
            f"cannot copy the files of {plan.source}: {error.strerror}", where=error.filename
        ) from None
    if staged != plan.context_digest:
        raise EngineError(f"files of {plan.source} changed while its image was prepared", hint="run it again")
    dockerfile.write_text(plan.dockerfile.text(), "utf-8")


def _failure(plan: ImagePlan, finished: Finished) -> GymctlError:
    lines, hint = explain(finished.last_lines)
    names = ", ".join(f"`{name}`" for name in plan.servers)
    where, whose = f"server {names}" if names else None, f"the image of {plan.source}"
    if found := mismatch.find(step_output(finished.last_lines)):
        is_locked = requirements.FILE in plan.context.files and plan.kind == "server"
        lock = requirements.FILE if is_locked else "a file of hashes of its own"
        if plan.kind == "base":
            lock = "a lock of gymctl's installation"
        command = requirements.COMMAND.format(plan.source) if is_locked else None
        hint = mismatch.hint_for(lock, command)
        return mismatch.refusal(found, whose=whose, where=where, hint=hint, details=lines)
    what = f"{whose} does not build (exit code {finished.exit_code})"
    return EngineError(what, where=where, details=lines, hint=hint)


def _combined(failures: Sequence[GymctlError]) -> GymctlError:
    if len(failures) == 1:
        return failures[0]
    details = [line for error in failures for line in (_headline(error), *error.details, "")]
    hints = dict.fromkeys(error.hint for error in failures if error.hint)
    # What was tampered with is the bigger news.
    kind = IntegrityError if any(isinstance(error, IntegrityError) for error in failures) else EngineError
    return kind(f"{len(failures)} images do not build", details=details, hint="; ".join(hints) or None)


def _headline(error: GymctlError) -> str:
    return f"{error.what} --> {error.where}" if error.where else error.what
