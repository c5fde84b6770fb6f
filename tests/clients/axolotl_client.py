#!/usr/bin/env python3
"""axolotl's NeMo Gym integration, unmodified, against the project behind a head at 127.0.0.1.

    python tests/clients/axolotl_client.py --head-port 11000 --rows rows.jsonl
    python tests/clients/axolotl_client.py --head-port 11000 --rows rows.jsonl --gym-dir DIR --start CONFIG...

With --start axolotl starts the servers itself, by the `ng_run` of DIR, and stops them at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import client_stubs
import requests
from client_checks import (
    KINDS,
    Project,
    Report,
    Row,
    Skipped,
    arguments,
    copies,
    dial,
    fetch_config,
    finished,
    first_user_text,
    judge_run,
    judge_verify,
    need,
    nulls_in,
    servers_of,
)

ABSENT = ("torch", "transformers", "peft", "accelerate", "trl", "bitsandbytes", "huggingface_hub", "wandb")
AT_ONCE = 16
GENERATIONS = 2
KILLED_AFTER = 10
"""Seconds that axolotl gives what it started to end."""


class Driver:
    """The checks in the order in which axolotl makes the calls."""

    server: ModuleType
    rewards: ModuleType
    multi_turn: ModuleType
    dataset: ModuleType
    plugin: ModuleType

    def __init__(self, report: Report, options: argparse.Namespace, gym_dir: Path) -> None:
        self._check = report.check
        self._options = options
        self._gym_dir = gym_dir
        self._config: dict[str, Any] = {}
        self._agents: dict[str, str] = {}
        self._endpoints: dict[str, str] = {}
        self._rows: list[Row] = []
        self._loaded: list[Row] = []
        self._replies: list[Any] = []

    def run(self) -> None:
        self._import()
        self._find_servers()
        self._read_config()
        self._discover()
        self._load_rows()
        reward_fn = self.rewards.create_nemo_gym_reward_fn(
            self._config, self._endpoints, model_name="check", verify_timeout=30
        )
        self._verify("create_nemo_gym_reward_fn -> POST /verify", reward_fn)
        self._verify("reward_nemo_gym_verify -> POST /verify", self.rewards.reward_nemo_gym_verify)
        self._roll_out()
        self._roll_out_many()
        self._parse()
        self._train()
        self._register()
        if self._options.start:
            self._stop()

    def _import(self) -> None:
        client_stubs.allow(*ABSENT)
        with self._check("import axolotl.integrations.nemo_gym", is_needed=True) as check:
            for name in ("server", "rewards", "multi_turn", "dataset", "plugin"):
                setattr(self, name, importlib.import_module(f"axolotl.integrations.nemo_gym.{name}"))
            version = importlib.import_module("axolotl").__version__
            check.note = f"axolotl {version}, not installed: {', '.join(client_stubs.used())}"

    def _find_servers(self) -> None:
        options, folder = self._options, str(self._gym_dir)
        with self._check("ensure_gym_repo"):
            need(self.server.ensure_gym_repo(folder, auto_clone=False) == folder, "another folder")
        with self._check("ensure_gym_venv"):
            if not options.gym_dir:
                raise Skipped("no --gym-dir")
            need((self._gym_dir / ".venv/bin/python").exists(), "axolotl would make an environment itself")
            self.server.ensure_gym_venv(folder)
        with self._check("start_servers", is_needed=True) as check:
            began = time.monotonic()
            configs = options.start or ["none.yaml"]
            self.server.start_servers(folder, configs, head_port=options.head_port, timeout=240)
            is_ours = self.server._ng_process is not None
            need(is_ours == bool(options.start), f"started something: {is_ours}")
            how = "started by ng_run" if is_ours else "found the head"
            check.note = f"{how}, {time.monotonic() - began:.1f}s"

    def _read_config(self) -> None:
        port = self._options.head_port
        with self._check("get_server_configs", is_needed=True) as check:
            self._config = self.server.get_server_configs(head_port=port)
            check.note = f"{len(self._config)} top-level keys"
        with self._check("the head sends a JSON string that holds YAML"):
            need(fetch_config(port) == self._config, "read otherwise by axolotl")
        with self._check("every server has a host and a port, resolved"):
            for kind in KINDS:
                for name, (_, settings) in servers_of(self._config, kind).items():
                    host, at = settings.get("host"), settings.get("port")
                    need(isinstance(host, str) and "${" not in host, f"{name}: host {host!r}")
                    need(type(at) is int, f"{name}: port {at!r}")
        with self._check("GET / on the head answers"):
            requests.get(f"http://127.0.0.1:{port}/", timeout=5)

    def _discover(self) -> None:
        server, config = self.server, self._config
        with self._check("get_agent_servers", is_needed=True) as check:
            self._agents = server.get_agent_servers(config, head_host="127.0.0.1")
            need(self._agents, "no agents")
            for url in self._agents.values():
                dial(url)
            check.note = ", ".join(self._agents)
        with self._check("get_server_base_url, get_verify_endpoint") as check:
            for name, (implementation, _) in servers_of(config, "resources_servers").items():
                if name == implementation:  # axolotl sees no others
                    base = server.get_server_base_url(config, name)
                    self._endpoints[name] = server.get_verify_endpoint(config, name)
                    need(self._endpoints[name] == f"{base}/verify", self._endpoints[name])
                    dial(base)
            need(self._endpoints, "no resources server that is named like its implementation")
            check.note = ", ".join(self._endpoints)
        with self._check("get_verify_endpoint of an unknown server"), contextlib.suppress(ValueError):
            server.get_verify_endpoint(config, "no_such_server")
            raise AssertionError("no error")
        with self._check("wait_for_resource_servers"):
            server.wait_for_resource_servers(config, timeout=10)
        with self._check("_get_verify_urls"):
            urls = self.rewards._get_verify_urls(self._options.head_port)
            need(set(self._endpoints) <= set(urls), f"only {sorted(urls)}")
            for url in urls.values():
                dial(url)

    def _load_rows(self) -> None:
        with self._check("rows for the agents that run", is_needed=True):
            self._rows = Project.behind(self._options.head_port, self._options.rows).rows
        with self._check("load_nemo_gym_datasets", is_needed=True) as check:
            named = [{"path": str(self._options.rows), "server_name": next(iter(self._endpoints))}]
            table = self.dataset.load_nemo_gym_datasets(str(self._gym_dir), named)
            self._loaded = [table[place]["verify_extra"] for place in range(len(table))]
            need(len(self._loaded) == len(self._rows), f"{len(self._loaded)} of {len(self._rows)} rows")
            filled = nulls_in(self._loaded) - nulls_in(self._rows)
            need(filled, "Arrow filled no nulls in: these rows show nothing")
            check.note = f"{len(self._loaded)} rows, {filled} nulls filled in"

    def _verify(self, name: str, reward_fn: Callable[..., Any]) -> None:
        """Single turn: no session was begun, and only the question and one answer are sent."""
        with self._check(name) as check:
            agents = servers_of(self._config, "responses_api_agents")
            rows = copies(self._loaded)
            servers = [agents[row["agent_ref"]["name"]][1]["resources_server"]["name"] for row in rows]
            with recorded() as posts:
                scores = reward_fn(
                    completions=[[{"role": "assistant", "content": "hello"}] for _ in rows],
                    prompts=[[{"role": "user", "content": first_user_text(row)}] for row in rows],
                    resources_server_ref=[{"name": name} for name in servers],
                    verify_extra=rows,
                )
            need(len(posts) == len(rows), f"{len(posts)} calls for {len(rows)} rows")
            for answer in posts:
                need(answer.status_code == 200, f"{answer.url}: {answer.status_code} {answer.text[:300]}")
                judge_verify(answer.json())
            check.note = f"rewards {[float(score) for score in scores]}"

    def _call(self, rows: list[Row]) -> list[Any]:
        return asyncio.run(
            self.multi_turn._call_agents(
                dataset_items=copies(rows),
                agent_servers=self._agents,
                timeout=self._options.timeout,
                max_completion_length=256,
            )
        )

    def _judge(self, reply: Any) -> int:
        return judge_run(reply, self._options.reward)

    def _roll_out(self) -> None:
        with self._check("_call_agents -> POST /run") as check:
            self._replies = self._call(self._rows)
            check.note = f"turns {[self._judge(reply) for reply in self._replies]}"
        with self._check("_call_agents with the nulls that Arrow fills in"):
            rows = copies(self._loaded)
            for row in rows:
                params = row["responses_create_params"]
                params.update(max_output_tokens=None, metadata=None, instructions=None)
            for reply in self._call(rows):
                self._judge(reply)

    def _roll_out_many(self) -> None:
        good = self._rows[0]
        with self._check("_call_agents: a bad row fails alone") as check:
            bad = {"agent_ref": good["agent_ref"], "responses_create_params": {"input": 7}}
            first, second, third = self._call([good, bad, good])
            need(str(second.get("error")).startswith("HTTP 4"), str(second)[:200])
            self._judge(first)
            self._judge(third)
            check.note = second["error"][:100]
        with self._check(f"_call_agents: {AT_ONCE} at once"):
            for reply in self._call((self._rows * AT_ONCE)[:AT_ONCE]):
                self._judge(reply)

    def _parse(self) -> None:
        with self._check("_parse_agent_response") as check:
            need(self._replies, "no replies")
            trained = []
            for reply in self._replies:
                parsed = self.multi_turn._parse_agent_response(reply, eos_token_id=-1)
                lengths = {len(parsed[key]) for key in ("completion_ids", "env_mask", "logprobs")}
                need(len(lengths) == 1, f"lengths {lengths}")
                need(parsed["num_turns"] == self._judge(reply), f"{parsed['num_turns']} turns")
                need(parsed["reward"] == reply["reward"], f"reward {parsed['reward']}")
                trained.append(sum(parsed["env_mask"]))
            need(all(trained), f"tokens to train on: {trained}")
            check.note = f"tokens to train on: {trained}"

    def _train(self) -> None:
        with self._check("create_nemo_gym_rollout_func") as check:
            lookup = {first_user_text(row): {"verify_extra": row} for row in copies(self._rows)}
            tokenizer = SimpleNamespace(eos_token_id=-1, pad_token_id=-1)
            trainer = SimpleNamespace(
                model=SimpleNamespace(training=True),
                num_generations=GENERATIONS,
                temperature=1.0,
                top_p=None,
                max_completion_length=256,
                processing_class=tokenizer,
            )
            rollouts = self.multi_turn.create_nemo_gym_rollout_func(
                self._agents, lookup, request_timeout=self._options.timeout
            )
            made = rollouts(list(lookup), trainer)
            count = len(lookup) * GENERATIONS
            sizes = {len(made[key]) for key in ("completion_ids", "env_mask", "logprobs", "env_reward")}
            need(sizes == {count}, f"{sizes} for {count} rollouts")
            need(len(made["prompt_ids"]) == len(lookup), "one prompt for each row")
            need(all(made["num_turns"]), f"turns {made['num_turns']}")
            scores = self.rewards.reward_env([None] * count, env_reward=made["env_reward"])
            need(scores == made["env_reward"], f"reward_env {scores}")
            check.note = f"{count} rollouts, rewards {made['env_reward']}"

    def _register(self) -> None:
        with self._check("NemoGymPlugin.register"):
            plugin = self.plugin.NemoGymPlugin()
            settings = {
                "nemo_gym_enabled": True,
                "nemo_gym_dir": str(self._gym_dir),
                "nemo_gym_auto_start": False,
                "nemo_gym_head_port": self._options.head_port,
                "nemo_gym_server_timeout": 10,
            }
            plugin.register(settings)
            need(plugin._agent_servers == self._agents, f"agents {plugin._agent_servers}")
            need(plugin._verify_endpoints == self._endpoints, f"endpoints {plugin._verify_endpoints}")

    def _stop(self) -> None:
        with self._check("post_train_unload ends what ng_run started") as check:
            began = time.monotonic()
            settings = {"nemo_gym_enabled": True, "nemo_gym_auto_start": True}
            self.plugin.NemoGymPlugin().post_train_unload(settings)
            took = time.monotonic() - began
            need(took < KILLED_AFTER, f"took {took:.1f}s: killed by axolotl")
            need(self.server._ng_process.returncode is not None, "still runs")
            with contextlib.suppress(requests.exceptions.ConnectionError):
                requests.get(f"http://127.0.0.1:{self._options.head_port}/", timeout=2)
                raise AssertionError("the head still answers")
            check.note = f"{took:.1f}s, exit code {self.server._ng_process.returncode}"


@contextlib.contextmanager
def recorded() -> Iterator[list[requests.Response]]:
    """The answers to every POST made by `requests`; axolotl itself keeps only their rewards."""
    answers: list[requests.Response] = []
    original = requests.sessions.Session.request

    def request(self: Any, method: str, url: str, **options: Any) -> requests.Response:
        answer = original(self, method, url, **options)
        if method.upper() == "POST":
            answers.append(answer)
        return answer

    requests.sessions.Session.request = request
    try:
        yield answers
    finally:
        requests.sessions.Session.request = original


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--gym-dir", type=Path, help="the folder that stands in for a NeMo Gym checkout")
    parser.add_argument(
        "--start", nargs="+", metavar="CONFIG", help="start the servers with these (needs --gym-dir)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="axolotl-gym-") as empty:
        folder = options.gym_dir or Path(empty)
        return finished(lambda report, _: Driver(report, options, folder).run(), options)


if __name__ == "__main__":
    sys.exit(main())
