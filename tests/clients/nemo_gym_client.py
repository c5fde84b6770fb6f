#!/usr/bin/env python3
"""NeMo Gym's own client, unmodified, as NeMo RL, verl and Megatron-LM use it, against a head.

python tests/clients/nemo_gym_client.py --head-port 11000 --rows rows.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from client_checks import KINDS, Project, Report, Row, copies, judge_run, need, run, servers_of

REPEATS = 2


def steps(report: Report, options: argparse.Namespace) -> None:
    with report.check("import nemo_gym", is_needed=True) as check:
        from nemo_gym.package_info import __version__
        from nemo_gym.server_utils import BaseServerConfig, ServerClient

        check.note = f"nemo_gym {__version__}"
    with report.check("rows for the agents that run", is_needed=True):
        project = Project.behind(options.head_port, options.rows)
    head = BaseServerConfig(host="127.0.0.1", port=options.head_port)

    with report.check("ServerClient.load_from_global_config", is_needed=True) as check:
        client = ServerClient.load_from_global_config(head)
        check.note = f"{len(client.global_config_dict)} keys"
    with report.check("ServerClient.poll_for_status of every server") as check:
        names = [name for kind in KINDS for name in servers_of(project.config, kind)]
        found = {name: client.poll_for_status(name) for name in names}
        bad = {name: answer for name, answer in found.items() if answer != "success"}
        need(not bad, bad)
        check.note = ", ".join(names)

    loop = asyncio.new_event_loop()  # its HTTP client is one per process and stays on its first loop
    roll_out(report, options, project, head, loop)
    collect(report, options, project, loop)
    status(report)


def roll_out(
    report: Report,
    options: argparse.Namespace,
    project: Project,
    head: Any,
    loop: asyncio.AbstractEventLoop,
) -> None:
    from nemo_gym.rollout_collection import RolloutCollectionHelper

    async def rollouts(rows: list[Row]) -> dict[int, Any]:
        results = {}
        for task in RolloutCollectionHelper().run_examples(examples=rows, head_server_config=head):
            row, result = await asyncio.wait_for(task, options.timeout)  # it would try again for ever
            results[row["_rowidx"]] = result
        return results

    with report.check("RolloutCollectionHelper.run_examples -> POST /run") as check:
        rows = [{**row, "_rowidx": place} for place, row in enumerate(copies(project.rows))]
        results = loop.run_until_complete(rollouts(rows))
        need(len(results) == len(rows), f"rows {sorted(results)}")
        check.note = f"turns {[judge_run(results[place], options.reward) for place in range(len(rows))]}"
    with report.check("run_examples: a bad row raises a client error with a body") as check:
        agent = project.rows[0]["agent_ref"]
        bad = {"_rowidx": 0, "agent_ref": agent, "responses_create_params": {"input": 7}}
        try:
            loop.run_until_complete(rollouts([bad]))
        except Exception as error:  # noqa: BLE001 - of which class is the client's own affair
            code = getattr(error, "status", None)
            need(isinstance(code, int) and 400 <= code < 500, f"{type(error).__name__}, status {code}")
            need(getattr(error, "response_content", b""), "no body")
            check.note = f"status {code}"
        else:
            raise AssertionError("no error")


def collect(
    report: Report, options: argparse.Namespace, project: Project, loop: asyncio.AbstractEventLoop
) -> None:
    from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict
    from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
    from omegaconf import DictConfig

    name = "run_from_config (gym eval run --no-serve) -> POST /run, POST /aggregate_metrics"
    with report.check(name) as check, tempfile.TemporaryDirectory(prefix="nemo-gym-run-") as folder:
        settings = DictConfig({"head_server": {"host": "127.0.0.1", "port": options.head_port}})
        get_global_config_dict(
            global_config_dict_parser_config=GlobalConfigDictParserConfig(
                initial_global_config_dict=settings, skip_load_from_cli=True, skip_load_from_dotenv=True
            )
        )
        output = Path(folder) / "out.jsonl"
        config = RolloutCollectionConfig(
            input_jsonl_fpath=str(options.rows), output_jsonl_fpath=str(output), num_repeats=REPEATS
        )
        made = RolloutCollectionHelper().run_from_config(config)
        loop.run_until_complete(asyncio.wait_for(made, 2 * options.timeout))
        records = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        need(len(records) == REPEATS * len(project.rows), f"{len(records)} records")
        for record in records:
            judge_run(record, options.reward)
        metrics = sorted(path.name for path in Path(folder).glob("*metrics*"))
        need(metrics, f"no metrics among {[path.name for path in Path(folder).iterdir()]}")
        check.note = f"{len(records)} rollouts, {', '.join(metrics)}"


def status(report: Report) -> None:
    with report.check("StatusCommand.discover_servers (gym env status) -> GET /server_instances") as check:
        from nemo_gym.server_status import StatusCommand

        servers = StatusCommand().discover_servers()
        need(servers, "none")
        bad = [(server.process_name, server.status) for server in servers if server.status != "success"]
        need(not bad, bad)
        check.note = ", ".join(server.process_name for server in servers)


if __name__ == "__main__":
    sys.exit(run(__doc__, steps))
