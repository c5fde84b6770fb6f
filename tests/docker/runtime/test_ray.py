"""A server that uses Ray gets a head and a worker beside it, and its tasks run on both."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import pytest

SOLVER = """\
import socket
import time

import ray
from helper import square
from pydantic import BaseModel

from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse, tool


class Squares(BaseModel):
    values: list[int]
    hosts: list[str]


@ray.remote(scheduling_strategy="SPREAD")
def task(number: int) -> tuple[int, str]:
    time.sleep(0.2)
    return square(number), socket.gethostname()


class Solver(ResourcesServer):
    ray_enabled = True

    @tool
    async def squares(self, count: int) -> Squares:
        results = [await one for one in [task.remote(number) for number in range(count)]]
        return Squares(values=[value for value, _ in results], hosts=[host for _, host in results])

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=1.0)


app = Solver.app()
"""
HELPER = "def square(number):\n    return number * number\n"
RAY = ("ray-head", "ray-worker-1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def squares(url: str, count: int) -> dict[str, Any]:
    body = json.dumps({"count": count}).encode()
    request = urllib.request.Request(f"{url}/squares", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def rows_of(folder: Any) -> dict[str, dict[str, Any]]:
    return {row["server"]: row for row in json.loads(folder.run("ps", "--json").stdout)[0]["servers"]}


@pytest.mark.timeout(900)  # a build that downloads Ray
def test_tasks_run_on_the_head_and_on_the_worker(folder: Any, containers: Any) -> None:
    """B56. Also: they run the locked image of their server, only the dashboard is published, on loopback, and
    who has died is told by name."""
    folder.server("solver", SOLVER, "ray[default]==2.60.0\n")
    (folder.path / "resources_servers" / "solver" / "helper.py").write_text(HELPER)
    port = free_port()
    built = folder.run("build", "tiny.yaml", "--json", timeout=400)
    assert built.returncode == 0, built.stderr
    ids = {one["name"]: one["id"] for one in json.loads(built.stdout)["images"]}
    up = folder.up("-d", "--locked", f"++ray_dashboard_port={port}", timeout=400)
    assert up.returncode == 0, up.stderr

    rows = rows_of(folder)
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(
        ("head", "solver", *RAY), "ready"
    )
    known = {name: containers.inspect(name) for name in RAY}
    images = {one["Image"] for one in known.values()}
    assert images == {containers.inspect("solver")["Image"]} == {ids["resources_servers/solver"]}
    hosts = {name: one["Config"]["Hostname"] for name, one in known.items()}
    answers = [squares(rows["solver"]["url"], 8)]
    while len(answers) < 20 and set(answers[-1]["hosts"]) != set(hosts.values()):  # SPREAD promises nothing
        answers.append(squares(rows["solver"]["url"], 8))
    assert answers[-1]["values"] == [number * number for number in range(8)]
    assert set(answers[-1]["hosts"]) == set(hosts.values())

    published = {name: one["HostConfig"]["PortBindings"] or {} for name, one in known.items()}
    assert published == {
        "ray-head": {"8265/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]},
        "ray-worker-1": {},
    }
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
        assert page.status == 200
    for one in known.values():
        host = one["HostConfig"]
        assert (host["ReadonlyRootfs"], host["CapDrop"], host["Privileged"]) == (True, ["ALL"], False)
        assert one["Config"]["User"] not in ("", "0", "0:0", "root")

    assert "Ray runtime started" in folder.run("logs", "ray-worker-1").stdout
    containers.docker("kill", known["ray-worker-1"]["Name"].lstrip("/"))
    assert rows_of(folder)["ray-worker-1"]["state"] == "failed"
    assert "ray-worker-1 · stopped (exit 137)" in folder.run("why", "--up").stdout
    down = folder.run("down")
    assert "the head and 2 Ray containers stopped and removed" in down.stderr + down.stdout
    assert containers.left() == []


def test_an_image_without_ray_says_what_its_requirements_lack(folder: Any) -> None:
    folder.server(
        "solver",
        "class Base:\n    ray_enabled = True\n"
        + folder.ready_app.replace("class Tiny(ResourcesServer)", "class Tiny(Base, ResourcesServer)"),
    )
    up = folder.up("-d")

    assert up.returncode == 5, up.stderr
    assert "`ray-head` stopped before it was ready" in up.stderr
    assert "add the package of `ray`" in up.stderr
