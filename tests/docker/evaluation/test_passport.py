"""The passport of a run in containers: images by id, limits in force inside, and an exact rerun."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from fakes.program import gymctl

from gymctl.images.lock import read

CONFIG = """\
config_paths: [benchmarks/weather/config.yaml]
weather:
  resources_servers:
    weather:
      resources: {memory: 192m, cpus: 0.5, pids: 200}
"""


def inspected(image: str) -> str:
    command = ["docker", "image", "inspect", image, "--format", "{{.Id}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_images_and_limits_are_those_of_the_containers_and_the_run_can_be_made_again(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG)
    run = ("eval", "run.yaml", "--runtime", "compose", "--limit", "2", "-o", "x.jsonl")
    made = gymctl(*run, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    told = json.loads((tmp_path / "x/passport.json").read_text())
    weather, policy = told["servers"]["weather"], told["servers"]["policy_model"]
    assert weather["memory_bytes"] == 192 * 1024**2
    assert (weather["cpus"], weather["pids"], weather["profile"]) == (0.5, 200, "closed")
    assert weather["cgroup"] in ("v1", "v2")
    assert (policy["memory_bytes"], policy["cpus"], policy["pids"]) == (2 * 1024**3, None, 1024)
    assert weather["id"] == inspected(weather["image"])
    assert told["machine"]["runtime"] == "compose" and told["machine"]["engine"]
    assert (tmp_path / "x/compose.yaml").read_text().startswith("#")

    verified = gymctl("verify", "x.jsonl", "--strict", cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "image weather " in verified.stdout and "images.lock.json" in verified.stdout

    again = gymctl("rerun", "x.jsonl", "--exact", "--gate", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "2 of 2 records equal" in again.stdout
    repeated = json.loads((tmp_path / "x_rerun/passport.json").read_text())
    assert repeated["servers"]["weather"]["id"] == weather["id"]
    assert "--locked" in repeated["command"]

    # The same answers scored again are a run of their own: what scored them is written down in the same way.
    scored = gymctl("reverify", "x_rerun.jsonl", "run.yaml", "--runtime", "compose", cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr
    lock = read(tmp_path / "x_rerun_reverified/images.lock.json")
    assert [image.name for image in lock.images] == ["Dockerfile.base", "resources_servers/weather"]
    new = json.loads((tmp_path / "x_rerun_reverified/passport.json").read_text())
    assert new["servers"]["weather"]["id"] == weather["id"] in {image.id for image in lock.images}
    assert new["servers"]["weather"]["memory_bytes"] == 192 * 1024**2
    assert new["scores_run"]["run"] == repeated["run"]
    verified = gymctl("verify", "x_rerun_reverified.jsonl", "--strict", cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
