"""A prepare script that needs NeMo Gym's package runs in a container of the family's image (DESIGN D13).

It sees the search root read-only and works in a copy of it. What it made is taken out when it has ended well,
so the container writes nothing on this machine. Tokens reach it in a file that only its user can read.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymctl.compose import render
from gymctl.config.model import Config
from gymctl.config.tree.masking import is_secret
from gymctl.engine import Engine
from gymctl.images import base
from gymctl.images.build import make
from gymctl.images.context import Context, checkout_files
from gymctl.images.nemo_gym import VERSION, Package, package_at, plan_family
from gymctl.images.plan import ImagePlan
from gymctl.images.prepare_script import plan_prepare
from gymctl.images.secrets import BuildSecrets
from gymctl.programs import Finished
from gymctl.runtime import nemo_gym_part, prepare_worker, private, scratch, tasks
from gymctl.runtime.script_code import Code
from gymctl.runtime.stack import Reporter

LABEL = f"{render.LABEL}.prepare"
ROOT, VIEW, OUT, TOLD = "/srv/root", "/tmp/root", "/tmp/made", "/run/gymctl"
"""In the container: the search root, the script's copy of it, what is taken out, what it is told."""
_HUB = frozenset({"datasets", "huggingface_hub", "transformers"})
_HUB_VARIABLES = ("HF_TOKEN", "HF_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Need:
    """What one script asks of its image."""

    source: str
    root: Path
    dependencies: tuple[str, ...]
    code: Code


async def images(config: Config, engine: Engine, needs: Collection[Need], reporter: Reporter) -> list[str]:
    """The tag for each need, in order; built where it is missing."""
    python = await base.choose_for_nemo_gym(config, engine, reporter)
    packages = [package_at(root) for root in config.search_roots]
    default = next((package for package in packages if package), Package(f"nemo-gym=={VERSION}"))
    families: dict[Package, ImagePlan] = {}
    scripts: list[ImagePlan] = []
    for need in needs:
        package = package_at(need.root) or default
        if package not in families:
            families[package] = await asyncio.to_thread(plan_family, package, python)
        scripts.append(
            plan_prepare(
                *(families[package], need.source, need.dependencies, need.root),
                needs_git=need.code.needs_git,
            )
        )
    await make([*families.values(), *scripts], engine, reporter, config.settings.build)
    return [plan.tag for plan in scripts]


async def sweep(engine: Engine) -> None:
    """Remove what commands left that were killed: containers that still run, files with tokens."""
    for folder in scratch.abandoned():
        await engine.run("rm", "--force", "--volumes", container_of(folder))


async def run(
    engine: Engine,
    image: str,
    root: Path,
    asked: Mapping[str, Any],
    code: Code,
    config: Config,
    out: Path,
    on_line: Callable[[str], None],
) -> Finished:
    """Run the script to its end; what it made is then below `out`. The container is gone when this returns or
    is cancelled."""
    network = BuildSecrets.of(os.environ, config.settings.build)
    environ = _environ(code, os.environ, network)
    hidden = {*config.secrets, *network.values, *(v for k, v in environ.items() if is_secret(k))}
    with scratch.folder() as told:
        name = container_of(told)
        owner = _owner()
        _tell(told, {**asked, "environ": environ}, code, config, network, owner)
        if owner is not None:
            root = await asyncio.to_thread(_readable, root, asked["copied"], told / "root")
        command = _command(name, image, root, told, config.project)
        try:
            finished = await engine.run(*command, on_line=on_line, secrets=hidden)
            if finished.exit_code == 0:
                copied = await engine.run("cp", f"{name}:{OUT}/.", str(out))
                copied.check("the files of a prepare script cannot be taken out of its container")
        finally:
            await tasks.finish(engine.run("rm", "--force", "--volumes", name))
    return finished


def container_of(told: Path) -> str:
    """The name of the container that is told by this folder."""
    return f"gymctl-prepare-{told.name.removeprefix(scratch.RUNNING)}"


def _owner() -> tuple[int, int] | None:
    """Who must be able to read our files: 999 where we are root, for the container is not."""
    return (999, 999) if render.user(os.getuid(), os.getgid()) == render.CONTAINER_USER else None


def _readable(root: Path, names: Iterable[str], copy: Path) -> Path:
    """The root itself where everybody may read it, else a copy of these entries that the container can."""
    files = dict(_files(root, names))
    folders = {root, *(root / parent for place in files for parent in Path(place).parents)}
    is_open = all(file.stat().st_mode & 0o004 for file in files.values())
    if is_open and all(folder.stat().st_mode & 0o005 == 0o005 for folder in folders):
        return root
    Context(dict(sorted(files.items()))).copy_to(copy)
    return copy


def _files(root: Path, names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for name in names:
        if (root / name).is_dir():
            yield from checkout_files(root / name, name)
        elif (root / name).is_file():
            yield name, root / name


def _tell(
    folder: Path,
    asked: Mapping[str, Any],
    code: Code,
    config: Config,
    network: BuildSecrets,
    owner: tuple[int, int] | None,
) -> None:
    """Write what the container is told; readable for its user alone."""
    part = {"name": "", "document": nemo_gym_part.script_text(config.document, code.text, config.secrets)}
    private.write(folder / scratch.TOLD, json.dumps(part), owner=owner)
    private.write(folder / "asked.json", json.dumps(asked), owner=owner)
    worker = Path(prepare_worker.__file__)
    private.write(folder / worker.name, worker.read_text("utf-8"), owner=owner)
    if network.ca is not None:
        private.write(folder / "ca.pem", network.ca.read_text("utf-8"), owner=owner)
    if owner is not None:
        os.chown(folder, *owner)


def _environ(code: Code, ours: Mapping[str, str], network: BuildSecrets) -> dict[str, str]:
    """Proxies, certificates, and those of our variables that the script names. A path of this machine means
    nothing in a container."""
    named = {*code.variables, *(_HUB_VARIABLES if code.modules & _HUB else ())}
    environ = {name: ours[name] for name in sorted(named) if ours.get(name, "/")[:1] not in ("/", "~")}
    environ |= {name: value for name, value in network.network.items() if name.lower().endswith("_proxy")}
    if network.ca is not None:
        certificates = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
        environ |= dict.fromkeys(certificates, f"{TOLD}/ca.pem")
    return environ


def _command(name: str, image: str, root: Path, told: Path, project: str) -> tuple[str, ...]:
    return (
        *("run", "--name", name, "--label", f"{LABEL}={project}", "--pull", "never", "--init"),
        *("--user", render.user(os.getuid(), os.getgid()), "--workdir", "/tmp"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "4096"),
        *("--log-driver", "none", "--env", f"GYMCTL_PART={TOLD}/part.json", "--env", "HOME=/tmp"),
        *("--mount", _mount(root, ROOT), "--mount", _mount(told, TOLD)),
        *("--entrypoint", "python", image, "-P", f"{TOLD}/{Path(prepare_worker.__file__).name}"),
        f"{TOLD}/asked.json",
    )


def _mount(source: Path, target: str) -> str:
    """A read-only mount; the fields are CSV, for a path may hold commas."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        ["type=bind", f"source={source}", f"target={target}", "readonly"]
    )
    return line.getvalue()


def take(made: Path, place: Path) -> None:
    """Move all files below `made` to the same names below `place`."""
    for file in sorted(path for path in made.rglob("*") if path.is_file()):
        target = place / file.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, target)
