"""Ten servers on gymctl's SDK as images: what making them takes, again, one more of them, and starting them.

`images.py --only servers` runs it. The images get repositories of their own (`gymctl/resources-perf-…`) and a
base that shares no layer with the user's and no cache of packages; all of it is removed after it.

    cold         no layer and no package on the machine: base and servers
    no layers    packages are in BuildKit's cache
    cached       no image, but every layer is in BuildKit's cache
    all there    what a warm `up` pays before it starts containers: planning and one look-up
    one more     a server with code of its own and no package beside the base's, as the last of them
    up           from the command until all answer, the head included
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gymctl.config.load import load
from gymctl.config.model import BuildSettings, Config
from gymctl.config.sources import Selection
from gymctl.engine import Engine
from gymctl.images import base as base_image
from gymctl.images import package_cache
from gymctl.images.build import make
from gymctl.images.plan import Dockerfile, ImagePlan, inputs_hash, plan_base, plan_servers

KIND = "resources_servers"
TRIVIAL = Path(__file__).parent / "trivial"
ROUNDS = 3
"""Of what takes little; the least counts."""


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: float
    unit: str
    target: float | None = None

    @property
    def is_met(self) -> bool:
        return self.target is None or self.value <= self.target


class Quiet:
    """A reporter that talks to nobody."""

    def step(self, name: str, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def progress(self, text: str) -> None: ...


def measure(count: int = 10, tell: Callable[[Figure], None] = lambda figure: None) -> list[Figure]:
    """In the current folder, which should be empty. tell: hears of each figure when it is there."""
    engine = Engine.connect()
    mark = f"{os.getpid()}-{int(time.time())}"
    servers(Path.cwd(), count, mark)
    config = load(Selection(config=("ten.yaml",)))
    python = asyncio.run(base_image.choose(config, engine, Quiet()))
    work = Work(engine, plan_base(python), config, mark)
    figures: list[Figure] = []
    try:
        for figure in (*work.builds(), *work.starts()):
            figures.append(figure)
            tell(figure)
    finally:
        work.clear()
    return figures


def servers(root: Path, count: int, mark: str) -> None:
    """Folders with code that differs, and a configuration of them."""
    blocks: dict[str, object] = {"head_server": {"host": "127.0.0.1", "port": 11891}}
    for number in range(count):
        name = f"perf_{number}"
        folder = root / KIND / name
        folder.mkdir(parents=True)
        code = (TRIVIAL / "app.py").read_text("utf-8")
        (folder / "app.py").write_text(f"{code}\nNUMBER = '{mark}-{number}'\n")
        (folder / "requirements.txt").touch()
        blocks[name] = {KIND: {name: {"entrypoint": "app.py", "domain": "other"}}}
    (root / "ten.yaml").write_text(json.dumps(blocks))


@dataclass
class Work:
    """The images of one measurement."""

    engine: Engine
    base: ImagePlan
    config: Config
    mark: str

    def plans(self, round_: str) -> list[ImagePlan]:
        """The base under a name of its own, and the servers on it."""
        text = self.base.dockerfile.text()
        text = re.sub(r"id=gymctl-(pip|uv)", rf"id=gymctl-perf-{self.mark}-\1", text)
        text = re.sub(r"^(FROM .*)$", rf"\1\nENV GYMCTL_PERF={self.mark}-{round_}", text, flags=re.M)
        dockerfile = Dockerfile(text)
        inputs = inputs_hash(self.base.parent, dockerfile, self.base.context_digest)
        base = replace(self.base, repository="gymctl/perf-base", dockerfile=dockerfile, inputs=inputs)
        return [base, *plan_servers(self.config, base.tag)]

    def builds(self) -> Iterator[Figure]:
        last = len(self.config.servers)
        cold = self.plans("cold")
        yield Figure("base, cold", self.build(cold[:1]), "s")
        yield Figure(f"{last} servers, cold", self.build(cold[1:]), "s")
        again = self.plans("again")
        yield Figure("base, no layers", self.build(again[:1]), "s")
        yield Figure(f"{last - 1} servers, no layers", self.build(again[1:-1]), "s")
        yield Figure("one more server", self.build(again[-1:]), "s", target=3.0)
        for plan in again[1:]:
            self.remove(plan)
        yield Figure(f"{last} servers, cached", self.build(again[1:]), "s", target=2.0)
        looks = [self.timed(lambda: self.build(self.plans("again"))) for _ in range(ROUNDS)]
        yield Figure("all there", min(looks), "s", target=2.0)
        sizes = [self.size(plan) - self.size(again[0]) for plan in again[1:]]
        yield Figure("one more server", max(sizes) / 1e6, "MB", target=1.0)

    def build(self, plans: Sequence[ImagePlan]) -> float:
        """Seconds."""
        return self.timed(lambda: asyncio.run(make(plans, self.engine, Quiet(), BuildSettings())))

    def timed(self, act: Callable[[], object]) -> float:
        began = time.monotonic()
        act()
        return time.monotonic() - began

    def size(self, plan: ImagePlan) -> int:
        """Bytes, with everything below."""
        return int(self.engine.api.api.inspect_image(plan.tag)["Size"])

    def starts(self) -> Iterator[Figure]:
        """`gymctl up` with the images of the user's own base, the first start to make them."""
        project = f"perf-servers-{os.getpid()}"
        program = (sys.executable, "-m", "gymctl")
        up = (
            *program,
            "up",
            "--detach",
            "--config",
            "ten.yaml",
            "--project",
            project,
            "--runtime",
            "compose",
        )
        spent: list[float] = []
        for _ in range(1 + ROUNDS):
            try:
                spent.append(self.timed(lambda: run(*up)))
            finally:
                run(*program, "down", project)
        yield Figure(f"up, {len(self.config.servers)} servers", min(spent[1:]), "s")

    def remove(self, plan: ImagePlan) -> None:
        subprocess.run(["docker", "rmi", "--force", plan.tag], capture_output=True, check=False)

    def clear(self) -> None:
        names = [f"gymctl/resources-{name.replace('_', '-')}" for name in self.config.servers]
        found = self.engine.api.api.images(filters={"reference": "gymctl/*"})
        tags = [tag for image in found for tag in image.get("RepoTags") or ()]
        ours = [tag for tag in tags if tag.rpartition(":")[0] in (*names, "gymctl/perf-base")]
        subprocess.run(["docker", "rmi", "--force", *ours], capture_output=True, check=False)
        for row in self.engine.api.df().get("BuildCache") or ():
            if f'"/gymctl-perf-{self.mark}-' in str(row.get("Description")):
                cache = package_cache.PackageCache(row["ID"], self.mark, 0, is_used=False)
                package_cache.remove(cache, self.engine)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr[-2000:]}")


def text(figures: Sequence[Figure]) -> str:
    lines = ["gymctl: servers on its SDK", ""]
    for one in figures:
        wanted = "" if one.target is None else f"   aim {one.target:g} {one.unit}"
        missed = "" if one.is_met else ", missed"
        lines.append(f"  {one.what:26} {one.value:8.3f} {one.unit}{wanted}{missed}")
    return "\n".join(lines)
