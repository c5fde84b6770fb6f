#!/usr/bin/env python3
"""NeMo Evaluator's Gym environment, solver and tools, unmodified, against a head and its resources servers.

python tests/clients/evaluator_client.py --head-port 11000 --rows rows.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import sys
import urllib.request
from typing import Any

import requests
from client_checks import (
    Project,
    Report,
    Row,
    example_arguments,
    first_user_text,
    judge_verify,
    need,
    run,
    servers_of,
    url_of,
)

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "It is cold.", "annotations": []}],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0,
    "model": "tiny",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [MESSAGE],
}


def steps(report: Report, options: argparse.Namespace) -> None:
    with report.check("import nemo_evaluator", is_needed=True) as check:
        import nemo_evaluator.environments.gym
        import nemo_evaluator.solvers.gym
        import nemo_evaluator.solvers.tool_backend  # noqa: F401

        check.note = f"nemo_evaluator {importlib.metadata.version('nemo-evaluator')}"
    with report.check("rows for the agents that run", is_needed=True):
        project = Project.behind(options.head_port, options.rows)
    urls = {project.resources_of(row)[1] for row in project.rows}
    with report.check("GET /health of the resources servers, which ManagedGymEnvironment waits for"):
        for url in urls:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                need(answer.status == 200, answer.status)
    with report.check("GymEnvironment(protocol='native') -> POST /verify") as check:
        check.note = f"rewards {asyncio.run(native(project, options))}"
    with report.check("POST /verify echoes the request"):
        for row in project.rows:
            url = project.resources_of(row)[1]
            answer = requests.post(
                f"{url}/verify", json={**row, "response": RESPONSE}, timeout=options.timeout
            )
            need(answer.status_code == 200, f"{answer.status_code} {answer.text[:300]}")
            judge_verify(answer.json())
    with report.check("GymSolver -> GET /server_instances, POST /run") as check:
        check.note = asyncio.run(solve(project, options))
    with report.check("HttpToolBackend -> GET /openapi.json, POST /<tool>") as check:
        for url in urls:
            rows = [row for row in project.rows if project.resources_of(row)[1] == url]
            check.note += f"{asyncio.run(offer_tools(url, rows))} "


async def native(project: Project, options: argparse.Namespace) -> list[float]:
    """Each row by the environment of its own server, as `gym://host:port?protocol=native&data=...` does."""
    from nemo_evaluator.environments.gym import GymDataset, GymEnvironment

    rewards: list[float] = []
    for place, row in enumerate(project.rows):
        url = project.resources_of(row)[1]
        dataset = GymDataset(options.rows)
        environment = GymEnvironment(url, protocol="native", dataset=dataset, timeout=options.timeout)
        try:
            need(await environment.dataset_size() == len(project.rows), "another number of rows")
            seed = await environment.seed(place)
            known: dict[str, Any] = {"problem_idx": place, "prompt": seed.prompt, **seed.metadata}
            verdict = await environment.verify("It is cold.", seed.expected_answer, **known)
            rewards.append(verdict.reward)
        finally:
            await environment.close()
    return rewards


async def solve(project: Project, options: argparse.Namespace) -> str:
    from nemo_evaluator.environments.base import SeedResult
    from nemo_evaluator.solvers.gym import GymSolver

    notes: list[str] = []
    head = f"http://127.0.0.1:{options.head_port}"
    agents = servers_of(project.config, "responses_api_agents")
    for row in project.rows:
        agent = row["agent_ref"]["name"]
        params = row["responses_create_params"]
        metadata = {key: value for key, value in row.items() if key != "responses_create_params"}
        if "tools" in params:
            metadata["tools"] = params["tools"]
        task = SeedResult(
            prompt=first_user_text(row), expected_answer="", metadata=metadata, messages=params["input"]
        )
        solver = GymSolver(head, gym_agent=agent, trust_reward=True, timeout=options.timeout)
        result = await solver.solve(task)
        need(solver._agent_url == url_of(agents[agent][1]), f"found {solver._agent_url}")
        need(isinstance(result.reward, float), f"reward {result.reward!r}")
        need(options.reward in (None, result.reward), f"reward {result.reward}")
        notes.append(f"{agent} {result.reward}")
    return ", ".join(notes)


async def offer_tools(url: str, rows: list[Row]) -> str:
    """Exactly the tools of a server's rows are offered to the model, and each can be called."""
    from nemo_evaluator.solvers.tool_backend import HttpToolBackend

    wanted = {
        tool["name"]: tool for row in rows for tool in row["responses_create_params"].get("tools") or []
    }
    backend = HttpToolBackend(url, session_id="check")  # which it adds to the arguments
    try:
        offered = [tool["function"]["name"] for tool in await backend.list_tools()]
        need(set(offered) == set(wanted), f"offered {sorted(offered)}, not {sorted(wanted)}")
        for name, tool in wanted.items():
            result = await backend.call_tool(name, example_arguments(tool))
            need(not result.is_error, f"{name}: {result.content[:300]}")
    finally:
        await backend.close()
    return " ".join(offered)


if __name__ == "__main__":
    sys.exit(run(__doc__, steps))
