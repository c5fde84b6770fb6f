"""A whole project in containers for the length of a `with` block, on Testcontainers' compose support.

    from gymctl.testing.stack import GymStack

    with GymStack(benchmark="weather", model_type="scripted_model") as stack:
        stack.url("weather")                     # dial any server of it from the test
        done = asyncio.run(stack.run(rows))      # or make rollouts, as `gymctl eval` does
        stack.compose.get_logs("weather")        # Testcontainers' DockerCompose: logs, exec, ports

gymctl renders the compose file, builds missing images, writes the part files and waits until every server
answers; Testcontainers starts the services. Its reaper (Ryuk) takes no part: compose projects are not given
to it, and so no image is pulled. What ends the block, an error or Ctrl+C among them, removes everything; what
a killed test run leaves behind carries gymctl's labels, so that `gymctl down` finds it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CalledProcessError
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import orjson

from gymctl.config.checks import evaluation
from gymctl.config.load import Selection, load
from gymctl.config.model import Config
from gymctl.counts import counted
from gymctl.engine import Engine
from gymctl.errors import PrerequisiteError, UsageError
from gymctl.paths import ProjectPaths
from gymctl.programs import Finished
from gymctl.rollouts import surroundings
from gymctl.rollouts.captures import Captures
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.route import Routing
from gymctl.rollouts.run import Run, RunRequest
from gymctl.rollouts.settings import only_agent, routing
from gymctl.runtime import state
from gymctl.runtime.compose import ComposeLauncher
from gymctl.runtime.containers import ComposeStack
from gymctl.runtime.running import RunningProject
from gymctl.runtime.stack import Reporter
from gymctl.runtime.tasks import finish
from gymctl.runtime.up import bring_up
from gymctl.testing import own_loop
from gymctl.transport import Transport

if TYPE_CHECKING:
    from testcontainers.compose import DockerCompose

logger = logging.getLogger("gymctl.testing")

Words = str | Sequence[str]
_SEVERAL = frozenset(
    {"config", "benchmark", "environment", "resources_server", "search_dir", "overrides", "set_file"}
)


class Chosen(TypedDict, total=False):
    """The selection flags of the command line, with the same meaning; one word, or several."""

    config: Words
    benchmark: Words
    environment: Words
    resources_server: Words
    search_dir: Words
    overrides: Words
    set_file: Words
    model_type: str
    agent_type: str
    model: str
    model_url: str
    model_api_key: str
    allow_unsupported_pairing: bool


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What came of some rows."""

    records: list[dict[str, Any]]
    """One for each rollout with a score, in the order in which they ended."""
    failures: list[dict[str, Any]]
    """One for each rollout without, with its class."""
    metrics: list[dict[str, Any]]
    """One for each environment server: what `/aggregate_metrics` says."""

    @property
    def rewards(self) -> list[float]:
        return [record["reward"] for record in self.records]


class GymStack:
    """A project that is up while its `with` (or `async with`) block lasts.

    Every use is a project of its own: several may be up at once. `async with` leaves the test's loop free, so
    that a container may call a server which the test serves on it.
    """

    def __init__(self, *, folder: Path | None = None, **chosen: Unpack[Chosen]) -> None:
        """folder: where configs and servers are looked for; the working directory, unless it is given."""
        self._folder = folder or Path.cwd()
        self._selection = _selection(chosen)
        self._config: Config | None = None
        self._running: RunningProject | None = None
        self._compose: DockerCompose | None = None

    def __enter__(self) -> GymStack:
        try:
            own_loop.run(self._up)
        except BaseException:  # Ctrl+C may come when it is up, and nobody else would take it down
            own_loop.run(self._down)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        own_loop.run(self._down)

    async def __aenter__(self) -> GymStack:
        await self._up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._down()

    @property
    def project(self) -> str:
        return self._project().project

    @property
    def head_url(self) -> str:
        return self._project().head_url

    @property
    def urls(self) -> dict[str, str]:
        """Every server by its id, without the head."""
        return {name: entry.url for name, entry in self._project().table.servers.items()}

    def url(self, server: str) -> str:
        urls = self.urls
        if server not in urls:
            raise UsageError(f"there is no server `{server}`", hint=f"there are {', '.join(urls)}")
        return urls[server]

    @property
    def compose(self) -> DockerCompose:
        """Testcontainers' view of the project: `get_logs`, `exec_in_container`, `get_containers`, …"""
        self._project()
        assert self._compose is not None
        return self._compose

    async def run(
        self,
        rows: Path | Iterable[Mapping[str, Any]],
        *,
        repeats: int = 1,
        limit: int | None = None,
        concurrency: int = 64,
        task_timeout: float | None = None,
        output: Path | None = None,
    ) -> Rollouts:
        """Make the rollouts of these rows and have them aggregated, as `gymctl eval` would.

        Rows go where the configuration's settings say, and to the only agent if they name none.
        A rollout that fails is among `failures`. `output` keeps the run: its rollouts there, and beside them
        passport, lock and the rest, as `gymctl eval -o` does. Without it they go when the stack goes.
        """
        project = self._project()
        folder = project.paths.folder / "runs" / secrets.token_hex(4)
        folder.mkdir(parents=True)
        source = Source(_written(rows, folder / "rows.jsonl"), fallback=self._fallback())
        request = RunRequest(
            [source],
            output or folder / "rollouts.jsonl",
            limit=limit,
            repeats=repeats,
            routing=self._routing(),
        )
        run = Run.prepare(request, project.table)
        try:
            run.note_surroundings(await surroundings.look(project))
            async with Transport() as transport:
                options = CollectOptions(concurrency, task_timeout, captures=self._captures())
                await run.collect(transport, project.table, options, asyncio.Event(), project.deaths())
                await run.aggregate(transport, project.table)
            await asyncio.to_thread(run.seal)
            return Rollouts(_lines(run.paths.rollouts), _lines(run.paths.failures), run.entries)
        finally:
            run.close()

    def _captures(self) -> Captures | None:
        folder = None if self._config is None else self._config.settings.call_capture
        return None if folder is None else Captures(Path(folder))

    def _routing(self) -> Routing:
        assert self._config is not None
        settings = evaluation.read(self._config.document, self._config.origins).settings
        return routing(settings, allows_any_pairing=self._selection.allow_unsupported_pairing)

    def _fallback(self) -> str | None:
        assert self._config is not None
        declaring = {dataset.declared_by for dataset in self._config.datasets}
        if len(declaring) == 1:
            return declaring.pop()
        return only_agent(self._project().table)

    def _project(self) -> RunningProject:
        if self._running is None:
            raise UsageError("the stack is not up", hint="use it inside its `with` block")
        return self._running

    async def _up(self) -> None:
        config = await asyncio.to_thread(load, self._selection, cwd=self._folder)
        engine = await asyncio.to_thread(Engine.connect, config.settings.build.platform)
        # A name of its own, within the length that Compose takes, for two uses at once.
        self._config = replace(config, project=f"{config.project[:50]}-{secrets.token_hex(4)}")
        launcher = _Launcher(engine)
        try:
            self._running = await bring_up(
                self._config,
                launcher=launcher,
                reporter=_Logged(),
                base=self._folder,
                is_head_movable=True,
            )
        except BaseException:
            self._tidy()
            raise
        self._compose = launcher.compose

    async def _down(self) -> None:
        if self._running is None:
            return
        running, self._running = self._running, None
        try:
            await finish(running.down())
        finally:
            self._tidy()

    def _tidy(self) -> None:
        """Remove the project's folder; the logs of servers that died stay, for the message names them. What
        could not be stopped keeps it whole, for `gymctl down`."""
        assert self._config is not None
        paths = ProjectPaths.of(self._config.project, self._folder)
        if state.load(paths) is not None:
            return
        kept = paths.logs if paths.logs.is_dir() and any(paths.logs.iterdir()) else None
        for path in paths.folder.iterdir() if paths.folder.is_dir() else ():
            if path.is_dir() and path != kept:
                shutil.rmtree(path)
            elif path != kept:
                path.unlink()
        if kept is None and paths.folder.is_dir():
            paths.folder.rmdir()


class _Launcher(ComposeLauncher):
    """Starts the rendered file through Testcontainers."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.compose: DockerCompose | None = None

    async def start(self, stack: ComposeStack, config: Config, reporter: Reporter) -> None:
        self.compose = _docker_compose(stack.paths.compose, stack.project)
        reporter.progress(f"starting {counted(len(stack.servers), 'container')}")
        try:
            # To its end, also when we are cancelled: what it is still creating could not be removed.
            await finish(asyncio.to_thread(self.compose.start))
        except CalledProcessError as error:
            lines = (error.stdout + b"\n" + error.stderr).decode("utf-8", "replace").splitlines()
            failed = Finished("docker compose up", error.returncode, "", tuple(lines))
            if not await asyncio.to_thread(stack.is_death, failed):
                raise stack.failure(failed) from error


def _docker_compose(file: Path, project: str) -> DockerCompose:
    try:
        from testcontainers.compose import DockerCompose
    except ModuleNotFoundError as error:
        raise PrerequisiteError(
            "GymStack needs testcontainers", hint="pip install 'gymctl[testing]'"
        ) from error

    made = DockerCompose(file.parent, file.name, wait=False)
    # COMPOSE_PROJECT_NAME of whoever runs the tests would go before the name in the file.
    made.compose_command_property = [*made.compose_command_property, "-p", project]
    return made


class _Logged:
    """A Reporter: pytest shows the log of a test that failed."""

    def step(self, name: str, text: str) -> None:
        logger.info("%s: %s", name, text)

    def note(self, text: str) -> None:
        logger.warning("%s", text)

    def progress(self, text: str) -> None:
        logger.debug("%s", text)


def _selection(chosen: Chosen) -> Selection:
    given: dict[str, Any] = dict(chosen)
    for name in _SEVERAL & given.keys():
        given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
    return Selection(**given)


def _written(rows: Path | Iterable[Mapping[str, Any]], path: Path) -> Path:
    if isinstance(rows, Path):
        return rows
    path.write_bytes(b"".join(orjson.dumps(dict(row)) + b"\n" for row in rows))
    return path


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line]
