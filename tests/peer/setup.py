"""What stands around one NeMo Gym resources server: the config that it is brought up with.

Its own config is taken as it is where a scripted model is all it needs beside it. Otherwise a smaller one
is written from it: the server's block word for word, `scripted_model` in place of every model, `simple_agent`
in place of agents that want more than a model (a sandbox, a command-line tool, a browser).

Either way our agent stands beside theirs. A folder is found by name in the first search root that has it, and
theirs has the names of ours: so our agents are linked under names of their own. Relays are ours under the
name of theirs, which would start a Ray cluster.
"""

from __future__ import annotations

import copy
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.errors import GymctlError
from gymctl.paths import bundled

KIND, AGENTS, MODELS, ENVIRONMENTS = (
    "resources_servers",
    "responses_api_agents",
    "responses_api_models",
    "environment_servers",
)
BOTH_HAVE = ("simple_agent", "gymnasium_agent", "tool_simulation_agent")
"""Agents that are here under the same name as there, and ask for nothing but a model."""
OURS = "gymctl_"
MODEL = "policy_model"
_SCRIPTED = {MODELS: {"scripted_model": {"entrypoint": "app.py"}}}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """How to start one server, and whom to ask what."""

    arguments: tuple[str, ...]
    """Of `gymctl up`."""
    server: str
    """The id of the resources server."""
    theirs: str | None
    """The id of their agent in front of it; None when it is not tried."""
    their_implementation: str
    ours: str
    note: str = ""
    """What differs from the server's own config."""


class Impossible(Exception):
    """There is no config that brings this server up; the text says why."""


def link_ours(folder: Path) -> Path:
    """A search root with our agents and our relay. Returns `folder`."""
    names = {f"{AGENTS}/{name}": f"{AGENTS}/{OURS}{name}" for name in BOTH_HAVE}
    for have, want in {**names, f"{ENVIRONMENTS}/legacy_agent": f"{ENVIRONMENTS}/legacy_agent"}.items():
        (folder / want).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / want).is_symlink():
            (folder / want).symlink_to(bundled() / "server_images" / have)
    return folder


def flavour(server: Path) -> str:
    """The config to take: named like the server, else one that names the example rows, else the first."""
    files = sorted((server / "configs").glob("*.yaml"))
    if not files:
        raise Impossible("has no config")
    named = [file for file in files if file.stem == server.name]
    telling = [
        file for file in files if "data/example.jsonl" in file.read_text("utf-8") and KIND in _read(file)
    ]
    return next(iter([*named, *telling, *files])).stem


def own(server: Path, roots: tuple[str, ...], folder: Path) -> Setup:
    """The server's own config, with our agent beside theirs. Raises Impossible where that will not do."""
    name = f"{server.name}/{flavour(server)}"
    selection = Selection(resources_server=(name,), search_dir=roots, model_type="scripted_model")
    try:
        config = load(selection, cwd=folder)
    except GymctlError as error:
        raise Impossible(error.what) from None
    blocks = config.servers.values()
    real = [one.name for one in blocks if one.kind == MODELS and one.implementation != "scripted_model"]
    if real:
        raise Impossible(f"asks the models {', '.join(real)}")
    agents = {one.name: (one.implementation, dict(one.settings)) for one in blocks if one.kind == AGENTS}
    other = sorted({implementation for implementation, _ in agents.values()} - set(BOTH_HAVE))
    if other or not agents:
        raise Impossible(f"its agents are {', '.join(other) or 'none'}")
    extra, theirs, ours = _beside(agents)
    file = _written(extra, folder / "ours.yaml")
    arguments = ("--resources-server", name, "--model-type", "scripted_model", str(file))
    return Setup(arguments, agents[theirs][1]["resources_server"]["name"], theirs, agents[theirs][0], ours)


def reduced(server: Path, folder: Path) -> Setup:
    """A config made from the server's: see the top of this file."""
    document = _read(server / "configs" / f"{flavour(server)}.yaml")
    document.pop("config_paths", None)
    blocks = {key: value for key, value in document.items() if isinstance(value, dict)}
    kept: Json = {key: value for key, value in document.items() if not _is_server(value)}
    servers = {key: value for key, value in blocks.items() if KIND in value}
    if not servers:
        raise Impossible("its config has no resources server")
    server_id = next(iter(servers))
    agents = {
        key: next(iter(value[AGENTS].items()))
        for key, value in blocks.items()
        if AGENTS in value and next(iter(value[AGENTS])) in BOTH_HAVE
    }
    chosen = {key: value for key, value in agents.items() if _fronts(value[1], server_id)}
    if not chosen:
        chosen = {f"{server_id}_simple_agent": ("simple_agent", agent(server_id))}
    kept |= {server_id: servers[server_id]}
    kept |= {key: {AGENTS: {name: _without_datasets(block)}} for key, (name, block) in chosen.items()}
    extra, theirs, ours = _beside(chosen)
    kept |= extra
    models = dict.fromkeys((MODEL, *_models(kept)))
    kept |= dict.fromkeys(models, _SCRIPTED)
    file = _written(kept, folder / "reduced.yaml")
    note = _note(blocks, chosen, [model for model in models if model != MODEL])
    return Setup((str(file),), server_id, theirs, chosen[theirs][0], ours, note)


def _note(blocks: Json, chosen: Mapping[str, Any], models: Sequence[str]) -> str:
    """What stands in for what."""
    agents = [
        next(iter(block[AGENTS])) for name, block in blocks.items() if AGENTS in block and name not in chosen
    ]
    rare = [name for name in dict.fromkeys(agents) if name not in BOTH_HAVE]
    notes = [f"scripted_model for {', '.join(models)}"] if models else []
    return "; ".join([*notes, *([f"simple_agent for {', '.join(rare)}"] if rare else [])])


def _beside(agents: Mapping[str, tuple[str, Json]]) -> tuple[Json, str, str]:
    """Our agent beside the first of theirs: its block, their id, our id."""
    theirs = next(iter(agents))
    implementation, block = agents[theirs]
    ours = f"{OURS}{theirs}"
    own = {key: value for key, value in _without_datasets(block).items() if key not in ("host", "port")}
    return {ours: {AGENTS: {f"{OURS}{implementation}": own}}}, theirs, ours


def agent(server: str) -> Json:
    """A block for an agent in front of a resources server, with the scripted model behind it."""
    return {
        "entrypoint": "app.py",
        "resources_server": {"type": KIND, "name": server},
        "model_server": {"type": MODELS, "name": MODEL},
    }


def _without_datasets(block: Json) -> Json:
    return {key: copy.deepcopy(value) for key, value in block.items() if key != "datasets"}


def _fronts(block: Json, server: str) -> bool:
    return (block.get("resources_server") or {}).get("name") == server


def _is_server(value: Any) -> bool:
    return isinstance(value, dict) and any(kind in value for kind in (KIND, AGENTS, MODELS, ENVIRONMENTS))


def _models(value: Any) -> Iterator[str]:
    """Names of the models that something refers to."""
    if isinstance(value, dict):
        if value.get("type") == MODELS and isinstance(value.get("name"), str):
            yield value["name"]
        for child in value.values():
            yield from _models(child)
    elif isinstance(value, list):
        for child in value:
            yield from _models(child)


def _read(file: Path) -> Json:
    document = yaml.safe_load(file.read_text("utf-8"))
    return document if isinstance(document, dict) else {}


def _written(document: Json, file: Path) -> Path:
    file.write_text(yaml.dump(document, sort_keys=False, Dumper=_Plain), "utf-8")
    return file


def free_port() -> int:
    """For a head: the usual one may be somebody's."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class _Plain(yaml.SafeDumper):
    """Without anchors: a block that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
