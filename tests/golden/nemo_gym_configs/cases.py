"""What is asked: every YAML file of the wheel, and combinations that no file has.

A case is a plain dict that goes into the golden file: `id`, `folder` (the current folder: see `own`),
selectors by the name of their flag, and override tokens. Pure standard library.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

import own

Case = dict[str, Any]

MODEL = {"model_type": ["openai_model"]}
POLICY = ["++policy_base_url=http://127.0.0.1:9/v1", "++policy_api_key=sk-test", "++policy_model_name=tiny"]
MARKER = "given"
"""What is filled in for every value that a file leaves open."""
ENVIRONMENT = {
    name: f"given-{name.lower().replace('_', '-')}"
    for name in (
        "AGENTENV_API_KEY",
        "AGENTENV_URL",
        "ANYSWE_CONTAINER_FORMATTER",
        "AWS_REGION",
        "BBQ_JUDGE_API_KEY",
        "BBQ_JUDGE_BASE_URL",
        "DAYTONA_API_KEY",
        "HF_TOKEN",
        "NVINF_API_KEY",
        "OPENCODE_SANDBOX_IMAGE",
        "OPENSANDBOX_API_KEY",
        "OPENSANDBOX_BASE_URL",
        "PI_SANDBOX_IMAGE",
        "SINGULARITY_CACHEDIR",
        "TAVILY_API_KEY",
        "TERMINAL_BENCH_2_1_TASKS_DIR",
    )
}
"""The whole environment of a case, as far as configs look at it: what they ask for without a default."""

_SELECTORS = {
    "benchmarks": "benchmark",
    "environments": "environment",
    "resources_servers": "resources_server",
    "responses_api_models": "model_type",
    "responses_api_agents": "agent_type",
}


def all_cases(files: Iterable[str]) -> Iterator[Case]:
    """`files` are the paths of the wheel's YAML files, relative to its root."""
    shipped = sorted(files)
    yield from (_file(path) for path in shipped)
    yield from _pairs(shipped)
    yield from _agents(shipped)
    yield from _orders()
    yield from _own()


def _file(path: str) -> Case:
    """A file by its selector where it has one, else by its path; with a model unless it is one."""
    selector = _selector(path)
    chosen = {selector[0]: [selector[1]]} if selector else {"config": [path]}
    model = {} if path.startswith("responses_api_models/") else MODEL
    return _case(f"file {path}", {**chosen, **model}, POLICY)


def _selector(path: str) -> tuple[str, str] | None:
    parts = PurePosixPath(path).with_suffix("").parts
    flag = _SELECTORS.get(parts[0])
    if flag is None or not path.endswith(".yaml"):
        return None
    if flag in ("benchmark", "environment"):
        if len(parts) == 3:
            return flag, parts[1] if parts[2] == "config" else f"{parts[1]}/{parts[2]}"
        is_nested = len(parts) == 4 and parts[3] == "config"
        return (flag, f"{parts[1]}/{parts[2]}") if is_nested else None
    if len(parts) != 4 or parts[2] != "configs":
        return None
    return flag, parts[1] if parts[3] == parts[1] else f"{parts[1]}/{parts[3]}"


def _case(name: str, chosen: dict[str, list[str]], overrides: Iterable[str], folder: str = "plain") -> Case:
    return {"id": name, "folder": folder, **chosen, "overrides": list(overrides)}


def _pairs(shipped: list[str]) -> Iterator[Case]:
    """Two benchmarks in one config, in both orders."""
    names = [path.split("/")[1] for path in shipped if path.count("/") == 2 and path.endswith("/config.yaml")]
    names = [name for name in names if f"benchmarks/{name}/config.yaml" in shipped]
    for index in range(0, len(names), 5):
        pair = [names[index], names[(index * 7 + 11) % len(names)]]
        if pair[0] != pair[1]:
            for first, second in (pair, pair[::-1]):
                yield _case(f"pair {first} {second}", {"benchmark": [first, second], **MODEL}, POLICY)


AGENT_HOSTS = (
    {"benchmark": ["gsm8k"]},
    {"resources_server": ["workplace_assistant"]},
    {"resources_server": ["mcqa"]},
    {"benchmark": ["gpqa", "aime24"]},
)


def _agents(shipped: list[str]) -> Iterator[Case]:
    """Every agent config on its own in the place of the agent of several environments."""
    agents = [found[1] for path in shipped if (found := _selector(path)) and found[0] == "agent_type"]
    for agent, host in itertools.product(agents, AGENT_HOSTS):
        named = " ".join(name for names in host.values() for name in names)
        yield _case(f"agent {agent} on {named}", {**host, **MODEL, "agent_type": [agent]}, POLICY)


def _orders() -> Iterator[Case]:
    """The order of files decides: every order of a few that include each other."""
    for length in (2, 3):
        for files in itertools.permutations(("a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml"), length):
            yield _case(f"order {' '.join(files)}", {"config": ["server.yaml", *files]}, [], "orders")


def _own() -> Iterator[Case]:
    """Files and tokens of our own: one case for each file whose name starts with `case`, and each token."""
    for folder, files in own.folders().items():
        for name in files:
            if name.startswith("case"):
                yield _case(f"{folder} {name}", {"config": ["server.yaml", name]}, [], folder)
    for tokens in own.tokens():
        yield _case(
            f"tokens {' '.join(tokens)}", {"config": ["server.yaml", "tokens.yaml"]}, tokens, "tokens"
        )
    for folder in own.folders():
        if folder.startswith("env"):
            yield _case(f"{folder}", {}, [], folder)
            yield _case(f"{folder} and a file", {"config": ["server.yaml"]}, [], folder)
            yield _case(
                f"{folder} and a token", {"config": ["server.yaml"]}, ["++k=token", "+m.y=token"], folder
            )
            yield _case(f"{folder} and a path token", {}, ["+config_paths=[server.yaml,other.yaml]"], folder)
