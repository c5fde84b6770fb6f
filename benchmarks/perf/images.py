"""Ten NeMo Gym servers as images, and as the environments that NeMo Gym makes: bytes and time.

    python benchmarks/perf/images.py                       needs an engine and the package index; half an hour
    python benchmarks/perf/images.py --only images --json
    python benchmarks/perf/images.py --only servers        ten on gymctl's own SDK: own_images.py

The same ten resources servers, from one release, made twice each way:

    cold     no layer, no package on the machine
    warm     no layer and no environment, but packages are in the cache of the package manager
    start    everything is there: from the command until all ten answer

gymctl's images are built under names of this script, with a package cache of their own, and removed after it.
NeMo Gym runs in a container of its family's image, makes its environments there (`gym env start`) with hard
links from its cache, as it does by itself, and starts its servers from them.

CPU is that of the commands which make an image (what the engine spends on storing layers is not in it), of
the whole container of NeMo Gym, and at a start of all containers. Bytes: an image's own layers are those
beside the base that all ten share; an environment's are files that no other one has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import own_images
import yaml
from reports import Cost, Report, Size, output, spent, text

from gymctl.config.load import load
from gymctl.config.model import BuildSettings, Config
from gymctl.config.sources import Selection
from gymctl.engine import Engine
from gymctl.images import base as base_image
from gymctl.images.build import make
from gymctl.images.nemo_gym import plan_nemo_gym
from gymctl.images.plan import Dockerfile, ImagePlan
from gymctl.images.secrets import BuildSecrets
from gymctl.runtime.releases import folders

PACKAGE = "nemo-gym==0.7.0"
SERVERS = (
    *("mcqa", "string_match", "calendar", "structured_outputs", "structeval", "graphwalks", "iheval"),
    *("xlam_fc", "workplace_assistant", "example_multi_step"),
)
"""None needs a GPU, a sandbox, a judge, a compiler, data from elsewhere or Ray; seven want packages."""
KIND = "resources_servers"
REPOSITORY = "gymctl-perf"
TIMES = "/times"
"""In an image: what the shell's `times` said at the end of each of its commands."""
INTERRUPT = r"""
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
    except OSError:
        continue
    if any(word.endswith(b"/bin/gym") for word in words[:2]) and b"start" in words:
        os.kill(int(pid), signal.SIGINT)
"""
"""Ctrl+C for `gym env start`, inside of its container."""
COUNT = """
import collections, json, os, sys

def files(top):
    for folder, _, names in os.walk(top):
        for one in (os.lstat(os.path.join(folder, name)) for name in names):
            yield one.st_ino, one.st_blocks * 512

own = {name: dict(files(f"/work/venvs/resources_servers/{name}")) for name in sys.argv[1:]}
count = collections.Counter(number for mine in own.values() for number in mine)
size = {number: size for mine in own.values() for number, size in mine.items()}
alone = {name: sum(size[number] for number in mine if count[number] == 1) for name, mine in own.items()}
linked = sum(size[number] for number in count if count[number] > 1)
cache = sum(size for number, size in dict(files("/work/cache")).items() if number not in count)
print(json.dumps([alone, linked, cache]))
"""
"""Bytes on the disk, in the container of NeMo Gym: a file that has several names counts once."""


class Quiet:
    """A reporter that talks to nobody."""

    def step(self, name: str, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def progress(self, text: str) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("images", "environments", "servers"), action="append")
    parser.add_argument("--count", type=int, default=10, help="how many of `servers`; 10")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    only = asked.only or ("images", "environments", "servers")
    if "servers" in only:
        own(asked.count, is_json=asked.json)
    if set(only) != {"servers"}:
        compared(only, is_json=asked.json)


def own(count: int, *, is_json: bool) -> None:
    """Servers on gymctl's SDK, held to what they may cost."""
    with tempfile.TemporaryDirectory(prefix="gymctl-perf-") as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            figures = own_images.measure(
                count, lambda one: print(f"{one.what}: {one.value:.2f} {one.unit}", file=sys.stderr)
            )
        finally:
            os.chdir(before)
    rows = [{**asdict(one), "is_met": one.is_met} for one in figures]
    print(json.dumps(rows, indent=2) if is_json else own_images.text(figures))


def compared(only: Collection[str], *, is_json: bool) -> None:
    """The same ten servers of NeMo Gym made both ways."""
    root = Path(folders([PACKAGE], lambda text: print(text, file=sys.stderr))[0])
    with tempfile.TemporaryDirectory(prefix="gymctl-perf-") as folder:
        os.chdir(folder)
        Path("ten.yaml").write_text(yaml.safe_dump(ten(root), sort_keys=False), "utf-8")
        config = load(Selection(config=("ten.yaml",), search_dir=(str(root),)))
        reports: list[Report] = []
        if "images" in only:
            reports.append(images(config, root))
        if "environments" in only:
            reports.append(environments(config, root))
    print(
        json.dumps([asdict(one) for one in reports], indent=2) if is_json else "\n\n".join(map(text, reports))
    )


def ten(root: Path) -> dict[str, Any]:
    """A configuration of the ten servers alone, each as its own config has it."""
    found: dict[str, Any] = {"head_server": {"host": "127.0.0.1", "port": 11890}}
    for name in SERVERS:
        for file in sorted((root / KIND / name / "configs").glob("*.yaml")):
            blocks = yaml.safe_load(file.read_text("utf-8")).values()
            block = next(
                (one[KIND] for one in blocks if isinstance(one, dict) and name in one.get(KIND, {})), None
            )
            if block is not None:
                found[name] = {KIND: block}
                break
    return found


def images(config: Config, root: Path) -> Report:
    engine = Engine.connect()
    plans = asyncio.run(planned(config, engine))
    mark = f"{os.getpid()}-{int(time.time())}"
    costs: list[Cost] = []
    try:
        for round_ in ("cold", "warm"):
            marked = list(under_own_names(plans, mark, round_))
            costs += build(marked, engine, round_)
        sizes, total = image_sizes(marked, engine)
        costs += starts(root)
        return Report("gymctl: images", tuple(costs), sizes, total, sum(caches(mark).values()))
    finally:
        tags = [plan.tag for round_ in ("cold", "warm") for plan in under_own_names(plans, mark, round_)]
        subprocess.run(["docker", "rmi", "--force", *tags], capture_output=True, check=False)
        for identity in caches(mark):
            prune = ("docker", "buildx", "prune", "--force", "--filter", f"id={identity}")
            subprocess.run(prune, capture_output=True, check=False)


async def planned(config: Config, engine: Engine) -> list[ImagePlan]:
    return plan_nemo_gym(config, await base_image.choose_for_nemo_gym(config, engine, Quiet()))


def under_own_names(plans: Iterable[ImagePlan], mark: str, round_: str) -> Iterator[ImagePlan]:
    """The same images under other names, with no layer in common with gymctl's own; times inside."""
    names: dict[str, str] = {}
    for plan in plans:
        source = plan.dockerfile.text()
        source = re.sub(r"id=gymctl-(pip|uv)", rf"id=gymctl-perf-{mark}-\1", source)
        source = re.sub(r"^(FROM .*)$", rf"\1\nENV GYMCTL_PERF={mark}-{round_}", source, flags=re.M)
        source = re.sub(r"^(RUN (?:.*\\\n)*.*)$", rf"\1 && times >>{TIMES}", source, flags=re.M)
        named = replace(
            plan,
            repository=f"{REPOSITORY}/{plan.repository.removeprefix('gymctl/')}",
            inputs=f"{mark}-{round_}-{plan.inputs}"[:64],
            dockerfile=Dockerfile(source),
            parent=names.get(plan.parent, plan.parent),
        )
        names[plan.tag] = named.tag
        yield named


def build(plans: Sequence[ImagePlan], engine: Engine, round_: str) -> Iterator[Cost]:
    for what, some in (
        ("base", [plan for plan in plans if plan.kind == "base"]),
        ("ten servers", [plan for plan in plans if plan.kind == "server"]),
    ):
        began = time.monotonic()
        asyncio.run(make(some, engine, Quiet(), BuildSettings()))
        wall = time.monotonic() - began
        below = 0.0 if what == "base" else times_in(plans[0].tag)
        yield spent(f"{what}, {round_}", wall, sum(times_in(plan.tag) - below for plan in some))


def times_in(tag: str) -> float:
    """CPU seconds of the commands that made an image, its base's among them."""
    told = output("docker", "run", "--rm", "--entrypoint", "cat", tag, TIMES)
    # Two lines a command: the shell itself, and what it started; each `0m1.25s 0m0.30s`.
    return sum(
        int(minutes) * 60 + float(seconds) for minutes, seconds in re.findall(r"(\d+)m([\d.]+)s", told)
    )


def image_sizes(plans: Sequence[ImagePlan], engine: Engine) -> tuple[tuple[Size, ...], int]:
    """Of each server's image, and of all with their base: a layer counts once."""
    size = {plan.tag: int(engine.api.images.get(plan.tag).attrs["Size"]) for plan in plans}
    base = size[plans[0].tag]
    own = [Size(plan.source.rpartition("/")[2], size[plan.tag] - base, base) for plan in plans[1:]]
    return tuple(own), base + sum(one.own for one in own)


def caches(mark: str) -> dict[str, int]:
    """What BuildKit keeps of packages for the next build: id -> bytes."""
    units = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
    found: dict[str, int] = {}
    for entry in output("docker", "buildx", "du", "--verbose").split("\n\n"):
        facts = dict(line.split(":", 1) for line in entry.split("\n") if ":" in line)
        size = re.fullmatch(r"\s*([\d.]+)([kMG]?B)", facts.get("Size", ""))
        if size and f'"/gymctl-perf-{mark}-' in facts.get("Description", ""):
            found[facts["ID"].strip()] = int(float(size[1]) * units[size[2]])
    return found


def starts(root: Path) -> Iterator[Cost]:
    """`gymctl up` with the images there: the containers' CPU, and the command's own."""
    project = f"perf-images-{os.getpid()}"
    program = (sys.executable, "-m", "gymctl")
    up = (*program, "up", "--detach", "--config", "ten.yaml", "--search-dir", str(root), "--project", project)
    for is_measured in (False, True):
        try:
            began, own = time.monotonic(), os.times()
            output(*up)
            wall, now = time.monotonic() - began, os.times()
            client = now.children_user + now.children_system - own.children_user - own.children_system
            label = f"label=dev.gymctl.project={project}"
            servers = sum(map(container_cpu, output("docker", "ps", "-q", "--filter", label).split()))
            if is_measured:
                yield spent("start, head included", wall, client + servers)
        finally:
            output(*program, "down", project)


def environments(config: Config, root: Path) -> Report:
    """As NeMo Gym makes them, by its own command."""
    with tempfile.TemporaryDirectory() as secrets, nemo_gym(config, Path(secrets)) as container:
        costs = [
            start(container, "made and started, cold"),
            start(container, "start", "++skip_venv_if_present=true"),
        ]
        own, linked, cache = environment_bytes(container)
        output("docker", "exec", container, "sh", "-c", "rm -rf /work/venvs")
        costs.append(start(container, "made and started, warm"))
    sizes = tuple(Size(name, own[name], linked) for name in SERVERS)
    return Report("NeMo Gym: environments", tuple(costs), sizes, linked + sum(own.values()), cache)


@contextmanager
def nemo_gym(config: Config, secrets: Path) -> Iterator[str]:
    """A container of the family's image, empty but for the configuration and the way to the package index."""
    engine = Engine.connect()
    plans = asyncio.run(planned(config, engine))
    asyncio.run(make(plans[:1], engine, Quiet(), BuildSettings()))
    name = f"gymctl-perf-{os.getpid()}"
    run = (
        *("docker", "run", "--detach", "--name", name, "--init", "--user", "0", "--shm-size", "1g"),
        # What the image sets for servers, put back to what a user's machine has.
        *("--env", "UV_LINK_MODE=hardlink", "--env", "PYTHONDONTWRITEBYTECODE=", "--entrypoint", "sleep"),
        *("--volume", f"{secrets}:/run/secrets:ro", plans[0].tag, "infinity"),
    )
    with BuildSecrets.of(os.environ).options(secrets):
        for file in secrets.glob("secret-*"):
            file.with_name(file.name.removeprefix("secret-")).hardlink_to(file)
    output(*run)
    try:
        output("docker", "exec", name, "mkdir", "/work")
        output("docker", "cp", "ten.yaml", f"{name}:/work/ten.yaml")
        yield name
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True, check=False)


def start(container: str, what: str, *overrides: str) -> Cost:
    """`gym env start` until all are ready, then Ctrl+C."""
    command = (
        *("with-network", "gym", "env", "start", "+config_paths=[ten.yaml]", "++uv_venv_dir=/work/venvs"),
        *("++uv_cache_dir=/work/cache", *overrides),
    )
    began, before = time.monotonic(), container_cpu(container)
    asked = ["docker", "exec", "--workdir", "/work", container, *command]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines = [*lines[-40:], line]
            if re.search(r"All (\d+) / \1 servers ready", line):
                break
        else:
            sys.exit(f"NeMo Gym did not start:\n{''.join(lines)}")
        cost = spent(what, time.monotonic() - began, container_cpu(container) - before)
        output("docker", "exec", container, "python", "-c", INTERRUPT)
        for _ in process.stdout:
            pass
    return cost


def environment_bytes(container: str) -> tuple[dict[str, int], int, int]:
    """Each environment's own files; files that are links in several, once; the rest of the package cache."""
    told = output("docker", "exec", container, "python", "-c", COUNT, *SERVERS)
    alone, linked, cache = json.loads(told)
    return alone, linked, cache


def container_cpu(container: str) -> float:
    """Seconds that everything in a container has used."""
    read = (
        "cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null ||"
        " awk '/^usage_usec/ {print $2 * 1000}' /sys/fs/cgroup/cpu.stat"
    )
    return float(output("docker", "exec", container, "sh", "-c", read)) / 1e9


if __name__ == "__main__":
    main()
