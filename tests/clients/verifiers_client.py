#!/usr/bin/env python3
"""The NeMo Gym tasks of Prime Intellect's verifiers, unmodified: they call the resources server only.

python tests/clients/verifiers_client.py --head-port 11000 --rows rows.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

from client_checks import Project, Report, Row, example_arguments, need, run


def steps(report: Report, options: argparse.Namespace) -> None:
    with report.check("import verifiers.v1.tasksets.nemo_gym", is_needed=True) as check:
        from verifiers.v1.tasksets.nemo_gym.taskset import NeMoGymConfig, NeMoGymTaskset

        check.note = f"verifiers {importlib.metadata.version('verifiers')}"
    with report.check("rows for the agents that run", is_needed=True):
        project = Project.behind(options.head_port, options.rows)
    with report.check("NeMoGymTaskset.load", is_needed=True):
        tasks = list(NeMoGymTaskset(NeMoGymConfig(id="nemo-gym", dataset=str(options.rows))).load())
        need(len(tasks) == len(project.rows), f"{len(tasks)} tasks")
    for task, row in zip(tasks, project.rows, strict=True):
        name, url = project.resources_of(row)
        with report.check(f"{name}: POST /seed_session, a tool, POST /verify") as check:
            check.note = asyncio.run(episode(task, url, row))


async def episode(task: Any, url: str, row: Row) -> str:
    """One task as verifiers runs it, with a planned model: a tool call if there are tools, then a text."""
    from verifiers.v1.tasksets.nemo_gym.toolset import NeMoGymState
    from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage

    task.config.resources_url = url
    metrics: dict[str, float] = {}
    state = NeMoGymState()
    trace = SimpleNamespace(id="check", info={}, state=state, branches=[], record_metric=metrics.__setitem__)
    await task.setup(trace, None)
    need(state.cookies, "no cookie from /seed_session: its state would not be found again")

    messages: list[tuple[Any, bool]] = []
    used = "no tools"
    if state.direct_tools:
        name, spec = next(iter(state.direct_tools.items()))
        arguments = example_arguments(spec)
        text = await called(state, name, arguments)
        call = ToolCall(id="call_1", name=name, arguments=json.dumps(arguments))
        messages += [
            (AssistantMessage(content=None, tool_calls=[call]), True),
            (ToolMessage(tool_call_id="call_1", content=text), False),
        ]
        used = f"{name} {'over MCP' if state.mcp_url else ''} -> {text[:60]}"
    messages.append((AssistantMessage(content="It is snow, -4 degrees."), True))
    now = time.time()
    nodes = [
        SimpleNamespace(message=message, sampled=is_ours, timestamp=now) for message, is_ours in messages
    ]
    trace.branches = [SimpleNamespace(nodes=nodes)]
    reward = await task.nemo_gym(trace)
    need(isinstance(reward, float), f"reward {reward!r}")
    need(reward == row.get("reward_of_planned", reward), f"reward {reward}, metrics {metrics}")
    return f"{used}; reward {reward}"


async def called(state: Any, name: str, arguments: dict[str, Any]) -> str:
    """What a tool says, by the way that its server offers: as verifiers' own tool server asks it."""
    if state.mcp_url is None:
        reply = await state.post(name, arguments)
        need(reply.status_code == 200, f"{name}: {reply.status_code} {reply.text[:200]}")
        return reply.text
    from verifiers.v1.harnesses.utils.mcp import mcp_client

    limit = state.request_timeout
    server = {"url": state.mcp_url, "headers": state.mcp_headers, "timeout": limit, "connect_timeout": limit}
    async with mcp_client(server) as client:
        offered = [tool.name for tool in (await client.list_tools()).tools]
        need(name in offered, f"{name} is not offered over MCP: {offered}")
        result = await client.call_tool(name, arguments)
        need(not result.is_error, f"{name}: {result.content}")
        return result.content[0].text


if __name__ == "__main__":
    sys.exit(run(__doc__, steps))
