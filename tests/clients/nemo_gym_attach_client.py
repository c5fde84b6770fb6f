#!/usr/bin/env python3
"""NeMo Gym's RunHelper and rollout collection, unmodified, with an attach file, as NeMo RL uses them.

python tests/clients/nemo_gym_attach_client.py --head-port 11500 --rows rows.jsonl --attach attach.yaml \
    --engine http://127.0.0.1:8000/v1

Its own head listens at --head-port. The policy model that it starts runs in this environment, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import client_checks
from client_checks import KINDS, Project, Report, copies, judge_run, need, servers_of, url_of


def steps(report: Report, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(options, Path(folder))
        os.chdir(folder)
        with report.check("RunHelper.start with servers that already run", is_needed=True) as check:
            from nemo_gym.cli.env import RunHelper
            from nemo_gym.global_config import GlobalConfigDictParserConfig
            from nemo_gym.package_info import __version__
            from omegaconf import OmegaConf

            helper = RunHelper()
            asked = GlobalConfigDictParserConfig(
                initial_global_config_dict=OmegaConf.create(settings), skip_load_from_cli=True
            )
            helper.start(global_config_dict_parser_config=asked)
            check.note = f"nemo_gym {__version__}"
        try:
            attached(report, options, helper)
        finally:
            with report.check("RunHelper.shutdown"):
                helper.shutdown()


def settings_of(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What a trainer passes; the folder gets the environment of its policy model: this one."""
    environment = folder / "responses_api_models" / "vllm_model" / ".venv"
    environment.parent.mkdir(parents=True)
    environment.symlink_to(sys.prefix)
    return {
        "config_paths": [str(options.attach.resolve())],
        "head_server": {"host": "127.0.0.1", "port": options.head_port},
        "policy_base_url": [options.engine],
        "policy_api_key": "dummy_key",
        "policy_model_name": "tiny",
        "skip_venv_if_present": True,
        "uv_venv_dir": str(folder),
    }


def attached(report: Report, options: argparse.Namespace, helper: Any) -> None:
    with report.check("its head lists our servers, and it started the policy model alone") as check:
        project = Project.behind(options.head_port, options.rows)
        need([*helper._processes] == ["policy_model"], [*helper._processes])
        found = {name: one for kind in KINDS for name, one in servers_of(project.config, kind).items()}
        check.note = ", ".join(f"{name} {url_of(settings)}" for name, (_, settings) in found.items())
    with report.check("RolloutCollectionHelper.run_examples -> our agents -> its policy model") as check:
        rows = [{**row, "_rowidx": place} for place, row in enumerate(copies(project.rows))]
        results = asyncio.run(rollouts(rows, options))
        need(len(results) == len(rows), f"rows {sorted(results)}")
        check.note = f"turns {[judge_run(results[place], options.reward) for place in range(len(rows))]}"
    with report.check("RunHelper.poll: all is alive"):
        helper.poll()


async def rollouts(rows: list[client_checks.Row], options: argparse.Namespace) -> dict[int, Any]:
    from nemo_gym.rollout_collection import RolloutCollectionHelper
    from nemo_gym.server_utils import BaseServerConfig

    head = BaseServerConfig(host="127.0.0.1", port=options.head_port)
    results = {}
    for task in RolloutCollectionHelper().run_examples(examples=rows, head_server_config=head):
        row, result = await asyncio.wait_for(task, options.timeout)  # it would try again for ever
        results[row["_rowidx"]] = result
    return results


def main() -> int:
    parser = client_checks.arguments(__doc__)
    parser.add_argument("--attach", type=Path, required=True, help="what `gymctl export attach` wrote")
    parser.add_argument("--engine", required=True, help="the trainer's engine, …/v1")
    return client_checks.finished(steps, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
