"""What the client drivers share: named checks, the head's document, and what a client needs of a reply.

A driver runs in an environment that holds its client and nothing of gymctl. It prints one line per check,
`PASS|FAIL|SKIP name - note`, then `N passed, N failed, N skipped`, and exits with 1 after a failure.
"""

from __future__ import annotations

import argparse
import copy
import json
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

KINDS = ("resources_servers", "responses_api_agents", "responses_api_models", "environment_servers")
TOKEN_KEYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")

Row = dict[str, Any]


class Skipped(Exception):
    """This check cannot be made here; the message says why."""


class Ended(Exception):
    """What follows needs what has just failed."""


@dataclass
class Check:
    name: str
    status: str = "PASS"
    note: str = ""


@dataclass
class Report:
    checks: list[Check] = field(default_factory=list)

    @contextmanager
    def check(self, name: str, *, is_needed: bool = False) -> Iterator[Check]:
        """The block as one named result. is_needed: after a failure nothing else is checked (Ended)."""
        check = Check(name)
        try:
            yield check
        except Skipped as reason:
            check.status, check.note = "SKIP", str(reason)
        except Exception as error:  # noqa: BLE001 - whatever a client raises is its result
            check.status, check.note = "FAIL", f"{type(error).__name__}: {error}"
        self.checks.append(check)
        print(f"{check.status} {name}" + (f" - {check.note[:600]}" if check.note else ""), flush=True)
        if is_needed and check.status == "FAIL":
            raise Ended(name)

    def end(self) -> int:
        """Print the last line. Returns the exit code."""
        passed, failed, skipped = (
            sum(check.status == status for check in self.checks) for status in ("PASS", "FAIL", "SKIP")
        )
        print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
        return 1 if failed else 0


def need(condition: object, message: object) -> None:
    if not condition:
        raise AssertionError(message)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The flags that all drivers have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-port", type=int, default=11000)
    parser.add_argument("--rows", type=Path, required=True, help="JSONL of rows that name their agents")
    parser.add_argument("--reward", type=float, help="what every /run must return")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one /run")
    return parser


def run(description: str | None, steps: Callable[[Report, argparse.Namespace], None]) -> int:
    """The body of a driver whose flags are those that all have."""
    return finished(steps, arguments(description).parse_args())


def finished(steps: Callable[[Report, argparse.Namespace], None], options: argparse.Namespace) -> int:
    report = Report()
    with suppress(Ended):
        steps(report, options)
    return report.end()


@dataclass(frozen=True)
class Project:
    """What runs behind a head, and the rows for it."""

    config: dict[str, Any]
    rows: list[Row]

    @classmethod
    def behind(cls, port: int, rows: Path) -> Project:
        config = fetch_config(port)
        found = [json.loads(line) for line in rows.read_text("utf-8").splitlines() if line]
        agents = servers_of(config, "responses_api_agents")
        need(all(row["agent_ref"]["name"] in agents for row in found), f"rows must name one of {[*agents]}")
        return cls(config, found)

    def resources_of(self, row: Row) -> tuple[str, str]:
        """Name and URL of the resources server behind a row's agent."""
        agent = servers_of(self.config, "responses_api_agents")[row["agent_ref"]["name"]][1]
        name = agent["resources_server"]["name"]
        return name, url_of(servers_of(self.config, "resources_servers")[name][1])


def fetch_config(port: int) -> dict[str, Any]:
    """The head's document, read as NeMo Gym's own client does: a JSON string that holds YAML."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/global_config_dict_yaml", timeout=30) as answer:
        body = json.loads(answer.read())
    need(isinstance(body, str), f"the head sent a JSON {type(body).__name__}, not a string")
    return yaml.safe_load(body)


def servers_of(config: dict[str, Any], kind: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Top-level name -> (implementation, its settings) of the servers of a kind."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, block in config.items():
        group = block.get(kind) if isinstance(block, dict) else None
        if isinstance(group, dict) and group:
            implementation = next(iter(group))
            found[name] = (implementation, group[implementation])
    return found


def url_of(settings: dict[str, Any]) -> str:
    return f"http://{settings['host']}:{settings['port']}"


def dial(url: str) -> None:
    """Raises OSError where nobody listens."""
    host, _, port = url.split("/")[2].rpartition(":")
    socket.create_connection((host, int(port)), timeout=3).close()


def judge_run(result: Any, reward: float | None) -> int:
    """What trainers need of one reply of /run. Returns the number of turns to train on."""
    need(isinstance(result, dict), f"not an object: {type(result).__name__}")
    need("error" not in result, f"error: {result.get('error')}")
    need(isinstance(result.get("reward"), int | float), "no reward that is a number")
    need(reward is None or result["reward"] == reward, f"reward {result['reward']}, not {reward}")
    need("input" in (result.get("responses_create_params") or {}), "the request's input is not echoed")
    output = (result.get("response") or {}).get("output")
    need(isinstance(output, list) and output, "no response.output")
    faults, turns = token_faults(output)
    need(not faults, "; ".join(faults))
    return turns


def token_faults(output: list[dict[str, Any]]) -> tuple[list[str], int]:
    """What would spoil training on an output, and its number of turns."""
    faults: list[str] = []
    seen: list[int] = []
    turns = 0
    for place, item in enumerate(output):
        present = [key for key in TOKEN_KEYS if key in item]
        if not present:
            continue
        if len(present) < len(TOKEN_KEYS) or None in [item[key] for key in present]:
            faults.append(f"output[{place}]: only {present}, or null; all three or none")
            continue
        turns += 1
        prompt, generated, scores = (item[key] for key in TOKEN_KEYS)
        if not all(type(token) is int for token in prompt + generated):
            faults.append(f"output[{place}]: token ids that are no integers")
        if len(generated) != len(scores):
            faults.append(f"output[{place}]: {len(generated)} ids, {len(scores)} log probabilities")
        if prompt[: len(seen)] != seen:
            faults.append(f"output[{place}]: the prompt does not begin with the {len(seen)} ids before it")
        seen = prompt + generated
    if not turns:
        faults.append("no item has token ids")
    return faults, turns


def judge_verify(reply: dict[str, Any]) -> None:
    need(isinstance(reply.get("reward"), int | float), f"no reward that is a number: {str(reply)[:200]}")
    missing = [key for key in ("responses_create_params", "response") if key not in reply]
    need(not missing, f"/verify does not echo {missing}")


def first_user_text(row: Row) -> str:
    messages = row["responses_create_params"]["input"]
    return next(message["content"] for message in messages if message["role"] == "user")


def example_arguments(tool: dict[str, Any]) -> dict[str, Any]:
    """Some value for each parameter of a tool."""
    examples = {"string": "Oslo", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    properties = (tool.get("parameters") or {}).get("properties") or {}
    return {name: examples[schema["type"]] for name, schema in properties.items()}


def nulls_in(value: object) -> int:
    """How many there are at all levels."""
    if isinstance(value, dict):
        return sum(map(nulls_in, value.values()))
    if isinstance(value, list):
        return sum(map(nulls_in, value))
    return int(value is None)


def copies(rows: list[Row]) -> list[Row]:
    """Clients write into the rows that they send."""
    return copy.deepcopy(rows)
