"""Run the prepare scripts of declared datasets (CONTRACT 11): look at all of them first, then run one by one.

A script is the benchmark author's code: it runs in a process of its own, on this machine, as the user, with
its packages in a folder of the cache. `prepare(**args)` must return the path of the file that it wrote.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gymctl.config.model import Config, Dataset
from gymctl.engine import run_command
from gymctl.errors import ConfigError, EngineError
from gymctl.images.secrets import BuildSecrets
from gymctl.paths import cache_dir
from gymctl.runtime import tasks
from gymctl.runtime.stack import Reporter

_WORKER = """
import importlib, importlib.util, json, sys
asked = json.loads(sys.argv[1])
sys.path[:0] = [asked["root"]]
if asked["module"]:
    module = importlib.import_module(asked["module"])
else:
    spec = importlib.util.spec_from_file_location("prepare", asked["script"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
made = module.prepare(**asked["args"])
with open(asked["result"], "w", encoding="utf-8") as file:
    json.dump(None if made is None else str(made), file)
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A prepare script that was found, and the files that it may say it wrote."""

    dataset: Dataset
    path: Path
    root: Path
    """The search root that holds it."""
    targets: tuple[Path, ...]
    dependencies: tuple[str, ...]

    @property
    def module(self) -> str | None:
        """Its dotted path below the root; None when it cannot be imported by one."""
        try:
            parts = self.path.relative_to(self.root).with_suffix("").parts
        except ValueError:
            return None
        return ".".join(parts) if all(part.isidentifier() for part in parts) else None


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
    scripts: Sequence[Script], args: Mapping[str, Any], at_once: int, reporter: Reporter
) -> list[Path]:
    """The files that were made, in the order of the scripts. Raises EngineError for a script that fails."""
    slots = asyncio.Semaphore(at_once)

    async def one(script: Script) -> Path:
        async with slots:
            reporter.progress(f"{script.dataset.name}: {script.path}")
            made = await _run(script, args, await _packages(script, reporter), reporter)
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
    path = (root / name).resolve()
    targets = tuple((one / dataset.jsonl_fpath).resolve() for one in config.search_roots)
    dependencies = dataset.settings.get("prepare_dependencies") or ()
    return Script(dataset, path, root, targets, tuple(map(str, dependencies)))


def _check(script: Script, args: Mapping[str, Any]) -> None:
    """The script has a `prepare` that takes the arguments; told without running a line of it."""
    try:
        module = ast.parse(script.path.read_bytes(), str(script.path))
    except SyntaxError as error:
        raise ConfigError(
            f"the prepare script is no Python: {error.msg}", where=f"{script.path}:{error.lineno}"
        ) from None
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


async def _packages(script: Script, reporter: Reporter) -> Path | None:
    """The folder with the script's packages, installed once for each list of them."""
    if not script.dependencies:
        return None
    import uv

    named = "\0".join((sys.version, *script.dependencies, str(script.root)))
    target = cache_dir() / "prepare" / sha256(named.encode()).hexdigest()[:20]
    if target.is_dir():
        return target
    reporter.progress(f"{script.dataset.name}: installing {' '.join(script.dependencies)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    network = BuildSecrets.of(os.environ)
    environ = {"NO_COLOR": "1", **network.network}
    if network.ca is not None:
        environ["SSL_CERT_FILE"] = str(network.ca)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        side = Path(temporary) / "packages"
        where = ("--python", sys.executable, "--target", str(side))
        done = await run_command(
            (uv.find_uv_bin(), "--no-progress", "pip", "install", *where, *script.dependencies),
            environ=environ,
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


async def _run(script: Script, args: Mapping[str, Any], packages: Path | None, reporter: Reporter) -> Path:
    with tempfile.TemporaryDirectory(prefix="gymctl-prepare-") as folder:
        result = Path(folder) / "result.json"
        asked = {
            "root": str(script.root),
            "module": script.module,
            "script": str(script.path),
            "args": dict(args),
            "result": str(result),
        }
        known = os.environ.get("PYTHONPATH", "")
        paths = [path for path in (str(packages or ""), known) if path]
        done = await run_command(
            (sys.executable, "-c", _WORKER, json.dumps(asked)),
            environ={"PYTHONPATH": os.pathsep.join(paths)},
            cwd=script.root if os.access(script.root, os.W_OK) else Path(folder),
            on_line=lambda line: reporter.progress(f"{script.dataset.name}: {line}"),
        )
        if done.exit_code != 0 or not result.is_file():
            raise EngineError(
                f"the prepare script of `{script.dataset.name}` failed (exit {done.exit_code})",
                where=str(script.path),
                details=list(done.last_lines)[-8:],
            )
        made = json.loads(result.read_text("utf-8"))
    return _returned(script, made)


def _returned(script: Script, made: str | None) -> Path:
    """`prepare` must return the declared file, as an absolute path that exists."""
    wanted = f"`prepare` must return the absolute path of `{script.dataset.jsonl_fpath}`"
    if made is None or not Path(made).is_absolute() or Path(made).resolve() not in script.targets:
        raise ConfigError(f"{wanted}, and returned `{made}`", where=str(script.path))
    if not Path(made).is_file():
        raise ConfigError(f"{wanted}, and there is no such file", where=str(script.path))
    return Path(made)
