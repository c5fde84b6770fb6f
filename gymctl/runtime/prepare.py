"""Run the prepare scripts of declared datasets (CONTRACT 11): look at all of them first, then run one by one.

A script is the benchmark author's code: it runs in a process of its own, on this machine, as the user, with
its packages in a folder of the cache. One that needs NeMo Gym's package runs in a container.
`prepare(**args)` must return the path of the file that it wrote. That file lands in the script's own search
root; where the root is an installation or cannot be written, below the current folder (a root, too).
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gymctl.config.model import BuildSettings, Config, Dataset
from gymctl.config.server_classes import newer_python
from gymctl.contract.servers import KINDS
from gymctl.engine import Engine
from gymctl.errors import ConfigError, EngineError, PrerequisiteError
from gymctl.images.nemo_gym import Package, package_at
from gymctl.images.secrets import BuildSecrets
from gymctl.paths import cache_dir
from gymctl.programs import Finished, run_command
from gymctl.runtime import cache, prepare_container, prepare_worker, scratch, script_code, tasks
from gymctl.runtime.prepare_container import Need
from gymctl.runtime.script_code import Code
from gymctl.runtime.stack import Reporter

FOLDERS = (*KINDS, "benchmarks", "environments")
"""What of an installation is NeMo Gym's, beside its package."""
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Script:
    """A prepare script that was found, and the files that it may say it wrote."""

    dataset: Dataset
    path: Path
    root: Path
    """The search root that holds it."""
    place: Path
    """The search root that its files go to."""
    targets: tuple[Path, ...]
    dependencies: tuple[str, ...]
    code: Code
    reason: str | None
    """Why it needs a container; None when it does not."""

    @property
    def module(self) -> str | None:
        """Its dotted path below the root; None when it cannot be imported by one."""
        try:
            parts = self.path.relative_to(self.root).with_suffix("").parts
        except ValueError:
            return None
        return ".".join(parts) if all(part.isidentifier() for part in parts) else None

    @property
    def is_in_place(self) -> bool:
        """It runs where it lies and writes there, as it expects."""
        return self.reason is None and self.place == self.root

    @property
    def source(self) -> str:
        """The script, below the root."""
        return _below(Path(str(self.dataset.prepare_script)), self.root)

    @property
    def target(self) -> str:
        """The declared file, below the root."""
        return _below(Path(self.dataset.jsonl_fpath), self.root)


def plan(config: Config, args: Mapping[str, Any], *, keeps_files: bool) -> list[Script]:
    """Every script that is to run, each once. Raises ConfigError for one that is missing or takes other
    arguments; nothing has run then."""
    found: dict[tuple[Path, str], Script] = {}
    for dataset in config.datasets:
        if dataset.prepare_script is None or (keeps_files and dataset.path is not None):
            continue
        script = _script(config, dataset)
        _check(script, args)
        found.setdefault((script.path, dataset.jsonl_fpath), script)
    return list(found.values())


async def run(
    config: Config, scripts: Sequence[Script], args: Mapping[str, Any], at_once: int, reporter: Reporter
) -> list[Path]:
    """The files that were made, in the order of the scripts. Raises EngineError for a script that fails, and
    PrerequisiteError, before anything runs, where one needs a container and no engine answers."""
    slots = asyncio.Semaphore(at_once)
    runner = await _Runner.of(config, scripts, args, reporter)

    async def one(script: Script) -> Path:
        async with slots:
            reporter.progress(f"{script.dataset.name}: {script.path}")
            made = await runner.run(script)
            reporter.step(script.dataset.name, str(made))
            return made

    async with tasks.group() as group:
        made = [group.create_task(one(script)) for script in scripts]
    return [task.result() for task in made]


def _script(config: Config, dataset: Dataset) -> Script:
    name = str(dataset.prepare_script)
    root = next((root for root in config.search_roots if (root / name).is_file()), None)
    if root is None:
        raise ConfigError(f"the prepare script of `{dataset.name}` is not there", where=name)
    path = root / name
    _parsed(path)
    package = package_at(root)
    is_installed = _is_installed(root, package)
    code = script_code.read(path, root, FOLDERS if is_installed else None)
    dependencies = tuple(map(str, dataset.settings.get("prepare_dependencies") or ()))
    return Script(
        dataset,
        path.resolve(),
        root,
        Path.cwd() if is_installed else root,
        tuple((one / dataset.jsonl_fpath).resolve() for one in config.search_roots),
        dependencies,
        code,
        script_code.reason_for_container(code, dependencies, is_of_nemo_gym=package is not None),
    )


def _is_installed(root: Path, package: Package | None) -> bool:
    """Whether files must not be put into a search root: somebody else's tool wrote it, or it is read-only."""
    is_fetched = root.is_relative_to(cache_dir().resolve()) or set(root.parts) & set(_INSTALLED)
    return (
        bool(is_fetched) or (package is not None and package.checkout is None) or not os.access(root, os.W_OK)
    )


def _below(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _parsed(path: Path) -> ast.Module:
    try:
        return newer_python.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        what = getattr(error, "msg", str(error))
        raise ConfigError(f"the prepare script is no Python: {what}", where=f"{path}:{line}") from None


def _check(script: Script, args: Mapping[str, Any]) -> None:
    """The script has a `prepare` that takes the arguments; told without running a line of it."""
    module = _parsed(script.path)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    node = next((one for one in module.body if isinstance(one, functions) and one.name == "prepare"), None)
    if node is None:
        return  # it may be imported from elsewhere
    names = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    unknown = sorted(args.keys() - names) if node.args.kwarg is None else []
    if unknown:
        raise ConfigError(
            f"`prepare` takes no `{unknown[0]}`",
            where=f"{script.path}:{node.lineno}",
            hint=f"`prepare_script_args` may hold: {', '.join(sorted(names)) or 'nothing'}",
        )


async def _packages(script: Script, settings: BuildSettings, reporter: Reporter) -> Path | None:
    """The folder with the script's packages, installed once for each list of them."""
    if not script.dependencies:
        return None
    import uv

    named = "\0".join((sys.version, *script.dependencies, str(script.root)))
    target = cache_dir() / "prepare" / sha256(named.encode()).hexdigest()[:20]
    if target.is_dir():
        cache.used(target)
        return target
    reporter.progress(f"{script.dataset.name}: installing {' '.join(script.dependencies)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    network = BuildSecrets.of(os.environ, settings)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        side = Path(temporary) / "packages"
        where = ("--python", sys.executable, "--target", str(side))
        done = await run_command(
            (uv.find_uv_bin(), "--no-progress", "pip", "install", *where, *script.dependencies),
            environ=network.uv_environ,
            cwd=script.root,
            secrets=network.values,
        )
        if done.exit_code != 0:
            raise EngineError(
                f"the packages of `{script.dataset.name}` cannot be installed",
                where="prepare_dependencies",
                details=list(done.last_lines)[-8:],
            )
        if not target.is_dir():
            side.rename(target)
    return target


@dataclass(frozen=True, slots=True)
class _Runner:
    """How scripts run: those that need one in a container of an image that is there."""

    config: Config
    args: Mapping[str, Any]
    reporter: Reporter
    engine: Engine | None
    images: Mapping[Path, str]

    @classmethod
    async def of(
        cls, config: Config, scripts: Sequence[Script], args: Mapping[str, Any], reporter: Reporter
    ) -> _Runner:
        contained = [script for script in scripts if script.reason is not None]
        if not contained:
            return cls(config, args, reporter, None, {})
        first = contained[0]
        try:
            engine = await asyncio.to_thread(Engine.connect)
        except PrerequisiteError as error:
            what = f"the prepare script of `{first.dataset.name}` needs a container, for {first.reason}"
            raise PrerequisiteError(f"{what}: {error.what}", where=str(first.path), hint=error.hint) from None
        await prepare_container.sweep(engine)
        needs = [Need(script.source, script.root, script.dependencies, script.code) for script in contained]
        tags = await prepare_container.images(config, engine, needs, reporter)
        paths = (script.path for script in contained)
        return cls(config, args, reporter, engine, dict(zip(paths, tags, strict=True)))

    async def run(self, script: Script) -> Path:
        with scratch.folder() as out:
            if script.reason is not None:
                finished = await self._contained(script, out)
            else:
                finished = await self._local(script, out)
            result = out / "result.json"
            if finished.exit_code != 0 or not result.is_file():
                raise EngineError(
                    f"the prepare script of `{script.dataset.name}` failed (exit {finished.exit_code})",
                    where=str(script.path),
                    details=[self._told(script, line, out) for line in finished.last_lines][-8:],
                )
            returned = json.loads(result.read_text("utf-8"))
            if script.is_in_place:
                return _returned(script, returned, script.targets)
            if returned is not None:
                returned = self._told(script, returned, out)
            if (out / "files" / script.target).is_file():
                prepare_container.take(out / "files", script.place)
            return _returned(script, returned, [(script.place / script.target).resolve()])

    async def _contained(self, script: Script, out: Path) -> Finished:
        assert self.engine is not None
        there = prepare_container
        asked = _asked(script, self.args, Path(there.ROOT), Path(there.VIEW), Path(there.OUT))
        image = self.images[script.path]
        on_line = self._shown(script, out)
        return await there.run(
            *(self.engine, image, script.root, asked, script.code, self.config, out, on_line)
        )

    async def _local(self, script: Script, out: Path) -> Finished:
        packages = await _packages(script, self.config.settings.build, self.reporter)
        asked = _asked(script, self.args, script.root, None if script.is_in_place else _view(out), out)
        (out / "asked.json").write_text(json.dumps(asked), "utf-8")
        paths = [path for path in (str(packages or ""), os.environ.get("PYTHONPATH", "")) if path]
        return await run_command(
            (sys.executable, "-P", prepare_worker.__file__, str(out / "asked.json")),
            environ={"PYTHONPATH": os.pathsep.join(paths)},
            cwd=script.root if script.is_in_place else out,
            on_line=self._shown(script, out),
        )

    def _shown(self, script: Script, out: Path) -> Callable[[str], None]:
        name = script.dataset.name
        return lambda line: self.reporter.progress(f"{name}: {self._told(script, line, out)}")

    def _told(self, script: Script, text: str, out: Path) -> str:
        """With the places of this machine for those of the copy that the script works in."""
        if script.is_in_place:
            return text
        view = prepare_container.VIEW if script.reason is not None else str(_view(out))
        return text.replace(view, str(script.place))


def _view(out: Path) -> Path:
    return out.resolve() / "root"


def _asked(
    script: Script, args: Mapping[str, Any], root: Path, view: Path | None, out: Path
) -> dict[str, Any]:
    """What prepare_worker.py is told; root, view and out as it sees them."""
    tops = {Path(script.target).parts[0], Path(script.source).parts[0]}
    entries = sorted(entry.name for entry in script.root.iterdir()) if view is not None else []
    copied = sorted({*tops, *(name for name in entries if name in FOLDERS)})
    is_whole = script.place == script.root
    linked = [name for name in entries if is_whole and name not in copied and not name.startswith(".")]
    return {
        "root": str(root),
        "view": None if view is None else str(view),
        "copied": copied,
        "linked": linked,
        "script": script.source,
        "module": script.module,
        "target": script.target,
        "args": dict(args),
        "environ": {},
        "made": str(out / "files"),
        "result": str(out / "result.json"),
    }


def _returned(script: Script, made: str | None, targets: Sequence[Path]) -> Path:
    """`prepare` must return the declared file, as an absolute path that exists."""
    wanted = f"`prepare` must return the absolute path of `{script.dataset.jsonl_fpath}`"
    if made is None or not Path(made).is_absolute() or Path(made).resolve() not in targets:
        raise ConfigError(f"{wanted}, and returned `{made}`", where=str(script.path))
    if not Path(made).is_file():
        raise ConfigError(f"{wanted}, and there is no such file", where=str(script.path))
    return Path(made)
