"""Published training clients, unmodified, against a project in containers; tests/clients drives them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from clients.client_checks import nulls_in
from fakes.client_environments import client
from fakes.contract import free_port, in_a_thread
from fakes.program import gymctl
from fakes.training import CONFIGS, plan, write_rows, write_settings
from fakes.vllm_upstream import VLLMUpstream

MCP = "++weather.resources_servers.weather.expose_tools_over_mcp=true"  # as well; verifiers then uses it


@dataclass(frozen=True)
class Training:
    """A project that is up, and its engines."""

    head_port: int
    rows: Path
    engines: tuple[VLLMUpstream, ...]


def engine() -> VLLMUpstream:
    """For containers, too; its tokens are kept apart only by those that are told to it."""
    return VLLMUpstream(samples_anew=True, plan=plan, address=("0.0.0.0", 0))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    folder = tmp_path_factory.mktemp("training")
    port = free_port()
    with ExitStack() as stack:
        engines = (engine(), engine())
        for one in engines:
            stack.enter_context(in_a_thread(one))
        write_settings(folder, port, [one.url for one in engines])
        project = f"training-{port}"
        stack.callback(gymctl, "down", project, cwd=folder)
        done = gymctl(
            "up", *CONFIGS, MCP, "--project", project, "--runtime", "compose", "--detach", cwd=folder
        )
        assert done.returncode == 0, done.stderr
        yield Training(port, write_rows(folder), engines)


@pytest.mark.parametrize(
    ("name", "checks", "note"),
    [
        ("axolotl", 23, "nulls filled in"),
        ("nemo_gym", 8, "out_aggregate_metrics.json"),
        ("verifiers", 6, "get_weather over MCP"),
        ("evaluator", 7, "get_weather"),
    ],
)
def test_a_published_client_is_served(name: str, checks: int, note: str, training: Training) -> None:
    arguments = ("--head-port", str(training.head_port), "--rows", training.rows, "--reward", "1")
    done = client(name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(name, done.stdout.splitlines()[-1])  # the figures of docs/nemo-gym.md
    assert f"{checks} passed, 0 failed" in done.stdout, done.stdout
    assert note in done.stdout, done.stdout


def test_the_engines_got_no_nulls_and_shared_the_sessions(training: Training) -> None:
    """After axolotl, whose rows have a null for every key that another row has, also in tool schemas."""
    asked = [one.bodies("/v1/chat/completions") for one in training.engines]
    assert all(asked), [len(bodies) for bodies in asked]
    for body in (body for bodies in asked for body in bodies):
        nulls = {key for key, value in body.items() if value is None or (nulls_in(value) and key == "tools")}
        assert not nulls, body


def test_axolotl_starts_the_project_and_stops_it(tmp_path: Path) -> None:
    """By the `ng_run` of the folder that it takes for a NeMo Gym checkout; then nothing is left."""
    folder = tmp_path / "Gym"
    made = gymctl("gym-dir", folder, "--sync", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    port, one = free_port(), engine()
    with in_a_thread(one):
        write_settings(folder, port, one.url)
        arguments = ("--head-port", str(port), "--rows", write_rows(tmp_path), "--reward", "1")
        try:
            done = client("axolotl", *arguments, "--gym-dir", folder, "--start", *CONFIGS)
        finally:
            left = containers_of(folder)
            gymctl("down", "--all", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print("axolotl --start", done.stdout.splitlines()[-1])
    assert "25 passed, 0 failed, 0 skipped" in done.stdout, done.stdout
    assert not left, (folder / "ng_run.log").read_text()


def containers_of(folder: Path) -> list[str]:
    command = ["docker", "ps", "-aq", "--filter", f"label=dev.gymctl.folder={folder.resolve()}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
