"""A server of NeMo Gym's as others get it: its image built twice, then run from packed files and a lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.contents import unpacked
from fakes.program import gymctl, read_lines
from peer import setup
from peer.recorded import Recorded, rollouts, same_prompt, scripted, tasks, turns
from peer.slice import PACKAGE, SERVERS

from gymctl.artefacts.gather import gather
from gymctl.config.load import load
from gymctl.config.model import BuildSettings
from gymctl.config.sources import Selection
from gymctl.engine import Engine
from gymctl.images import lock
from gymctl.images.build import plan_all
from gymctl.images.reproducible import check
from gymctl.runtime.releases import folders

pytestmark = pytest.mark.timeout(1800)
MCQA = SERVERS[0]
MODEL = ("--model-type", "scripted_model")


class Silent:
    """A reporter."""

    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


async def test_its_image_comes_out_twice_and_its_packed_files_run_locked_to_the_same_scores(
    tmp_path: Path,
) -> None:
    selected = ("--search-dir", PACKAGE, "--resources-server", MCQA.name)
    built = gymctl("build", *selected, *MODEL, cwd=tmp_path, timeout=900)
    assert built.returncode == 0, built.stderr
    known = lock.read(tmp_path / lock.FILE)
    bases = {image.name: image.base for image in known.images}
    assert bases["resources_servers/mcqa"] == bases["responses_api_agents/simple_agent"] == PACKAGE
    root = Path(folders([PACKAGE], print)[0])
    await check_its_image(root, tmp_path)

    pack(root, known, tmp_path)
    recorded = write_rows(root / "resources_servers" / MCQA.name / "data", tmp_path / "rows.jsonl")
    done = gymctl(
        *("eval", "--search-dir", "packed", "--benchmark", "mcqa", *MODEL, "-i", "rows.jsonl"),
        *("--locked", "--lock", "packed/images.lock.json", "-o", "results/x.jsonl"),
        f"++head_server.port={setup.free_port()}",
        cwd=tmp_path,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    records = sorted(read_lines(tmp_path / "results" / "x.jsonl"), key=lambda one: one["_ng_task_index"])
    held = [(one.reward, record["reward"]) for one, record in zip(recorded, records, strict=True) if one]
    assert len(held) >= 3
    assert [expected for expected, _ in held] == [reward for _, reward in held]
    ran = {image.name: image.id for image in lock.read(tmp_path / "results" / "x" / lock.FILE).images}
    assert PACKAGE in ran
    assert ran.items() <= {image.name: image.id for image in known.images}.items()


async def check_its_image(root: Path, cwd: Path) -> None:
    selection = Selection(resources_server=(MCQA.name,), search_dir=(str(root),), model_type=MODEL[1])
    engine = Engine.connect()
    plans = await plan_all(load(selection, cwd=cwd), engine, Silent())
    own = [plan for plan in plans if plan.source == "resources_servers/mcqa"]
    assert len(own) == 1
    await check(own, engine, Silent(), BuildSettings())


def pack(root: Path, known: lock.Lock, folder: Path) -> None:
    selection = Selection(resources_server=(MCQA.name,), search_dir=(str(root),), needs_model=False)
    unpacked(gather(load(selection, cwd=folder), selection, lock=known), folder / "packed")


def write_rows(data: Path, file: Path) -> list[Recorded | None]:
    """The example rows, with what the recorded model said as scripts; those that count, by row."""
    rows = tasks(data)[:5]
    known = [same_prompt(row, rollouts(data)) for row in rows]
    with file.open("w") as stream:
        for row, one in zip(rows, known, strict=True):
            asked = {**scripted(row, turns(one.output) if one else []), "agent_ref": {"name": MCQA.agent}}
            stream.write(json.dumps(asked) + "\n")
    return [None if one is None or one.row in MCQA.known_to_differ else one for one in known]
