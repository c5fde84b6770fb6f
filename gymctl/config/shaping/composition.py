"""Another agent takes the place of those that a configuration brings: `--agent-type` (CONTRACT 1.16).

A *standalone* agent leaves `resources_server.name: ???`. Each other agent that has a resources server is
replaced by a copy of it, bound to what the old one was bound to, under a new id; environment servers and rows
follow. The standalone block itself goes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymctl.config.checks import pairing
from gymctl.config.model import Origin, Write
from gymctl.config.shaping import held, renames, routing
from gymctl.config.tree import agents
from gymctl.config.tree.agents import AGENTS, Agent
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.origins import DEFAULT, Origins, OriginTree, Path, at, below, dotted, through
from gymctl.errors import AgentCompositionError

CARRIED = ("resources_server", "model_server", "datasets")
"""What the environment decides and no agent: taken from the agent that is replaced."""


@dataclass(frozen=True)
class Swap:
    """One agent replaced. Paths are (id, level 2, implementation)."""

    old: tuple[str, str, str]
    new: tuple[str, str, str]
    source: tuple[str, str, str]
    carried: frozenset[str]
    origin: Origin
    """Who asked for it: the flag, or the place of the `???`."""

    @property
    def said(self) -> str:
        return f"{self.new[2]} takes the place of {self.old[0]}"

    def before(self, path: Path) -> Path:
        """Where the value at `path` of the new agent stood before."""
        if path[:3] != self.new:
            return (self.old[0], *path[1:])
        is_carried = len(path) > 3 and path[3] in self.carried
        return (*(self.old if is_carried else self.source), *path[3:])


@dataclass(frozen=True)
class Composed:
    """What was done; empty when no agent is standalone."""

    swaps: tuple[Swap, ...] = ()
    written: Mapping[Path, Write] = field(default_factory=dict)
    """References and routes that follow."""


@dataclass(frozen=True)
class Asked:
    """Who asks, with what on the command line, and whether the gates are waived."""

    flag: str | None
    now: Layer
    held: Layer
    environ: Mapping[str, str]
    warn: Callable[[str], None]


def compose(document: dict[Any, Any], tree: dict[Any, OriginTree], asked: Asked) -> Composed:
    """Do it, in place. Raises the ConfigErrors that are named after agents."""
    found = agents.find(document)
    standalone = [agent for agent in found if agent.is_standalone]
    if not standalone:
        return Composed()
    origins = Origins(tree)
    source = _the_one(standalone, origins)
    targets = [agent for agent in found if agent.name != source.name and agent.has_resources_server]
    if not targets:
        raise _nobody_to_replace(source, origins)
    if not pairing.is_waived(document, asked.environ):
        for problem in pairing.agent_problems(source.type, targets, document, origins):
            raise problem
    origin = _asking(source, asked, origins)
    swaps = tuple(_swap(target, source, origin) for target in targets)
    _refuse_collisions(swaps, document, source, origins)
    _warn_of_dropped(swaps, asked)
    _drop_fronts(document, tree, source, asked.warn)
    problems = _replace(document, tree, swaps, asked.held)
    problems += held.left_over(asked.held, [swap.new[0] for swap in swaps])
    if problems:
        raise held.refuse(problems)
    written = _follow(document, tree, swaps)
    _refuse_outdated_routes(document, swaps, Origins(tree))
    for swap in swaps:
        path = routing.add(document, tree, swap.old[0], swap.new[0], origin)
        if path is not None:
            written[path] = Write(origin, swap.said, dotted(path), "composed")
    return Composed(swaps, written)


def _the_one(standalone: Sequence[Agent], origins: Origins) -> Agent:
    if len(standalone) == 1:
        return standalone[0]
    raise AgentCompositionError(
        f"{len(standalone)} agents leave their `resources_server` open, and only one can replace the others:"
        f" {', '.join(f'`{agent.name}`' for agent in standalone)}",
        where=origins.where(*_open_name(standalone[0])),
        details=[f"`{agent.name}` ({origins.where(*_open_name(agent))})" for agent in standalone],
        hint="load one standalone agent, or name a resources server in the others",
    )


def _nobody_to_replace(source: Agent, origins: Origins) -> AgentCompositionError:
    return AgentCompositionError(
        f"the agent `{source.name}` leaves its `resources_server` open, and there is no other agent with a"
        " resources server that it could replace",
        where=origins.where(*_open_name(source)),
        hint="add a benchmark, environment or resources server, or set"
        f" ++{dotted(_open_name(source))}=<resources server>",
    )


def _open_name(agent: Agent) -> Path:
    return (*agent.path, "resources_server", "name")


def _asking(source: Agent, asked: Asked, origins: Origins) -> Origin:
    place = origins.find(*_open_name(source)) or DEFAULT
    return Origin(f"--agent-type {asked.flag}") if asked.flag is not None else place


def _swap(target: Agent, source: Agent, origin: Origin) -> Swap:
    name = agents.composed_id(target.name, target.type, source.type)
    carried = frozenset(key for key in CARRIED if key in target.settings)
    return Swap(target.path, (name, AGENTS, source.type), source.path, carried, origin)


def _refuse_collisions(
    swaps: Sequence[Swap], document: Mapping[Any, Any], source: Agent, origins: Origins
) -> None:
    taken = set(document) - {swap.old[0] for swap in swaps} - {source.name}
    names = [swap.new[0] for swap in swaps]
    clashes = [swap for swap in swaps if swap.new[0] in taken or names.count(swap.new[0]) > 1]
    if not clashes:
        return
    details = []
    for swap in clashes:
        line = f"`{swap.old[0]}` would become `{swap.new[0]}` ({origins.where(*swap.old)})"
        is_taken = swap.new[0] in taken
        details.append(f"{line}, which is there already ({origins.where(swap.new[0])})" if is_taken else line)
    raise AgentCompositionError(
        f"two blocks would get the name `{clashes[0].new[0]}`",
        where=origins.where(*clashes[0].old),
        details=details,
        hint="give one of them another name",
    )


def _warn_of_dropped(swaps: Sequence[Swap], asked: Asked) -> None:
    """Settings of the old agent go with it; those of the command line were meant for this very run."""
    origins = Origins(asked.now.origins)
    for swap in swaps:
        settings: Any = asked.now.values
        for step in swap.old:
            settings = settings.get(step) if isinstance(settings, dict) else None
        for key in settings if isinstance(settings, dict) else ():
            if key not in swap.carried:
                asked.warn(
                    f"`{origins.where(*swap.old, key)}` has no effect, because {swap.said} as `{swap.new[0]}`"
                )


def _replace(
    document: dict[Any, Any], tree: dict[Any, OriginTree], swaps: Sequence[Swap], waiting: Layer
) -> list[held.Problem]:
    """New blocks in place of the old ones, no standalone one; returns what of `waiting` does not fit."""
    by_old = {swap.old[0]: swap for swap in swaps}
    source = swaps[0].source
    blocks, trees = dict(document), dict(tree)
    template, template_tree = blocks[source[0]][AGENTS][source[2]], at(trees, source)
    document.clear()
    tree.clear()
    problems: list[held.Problem] = []
    for name, block in blocks.items():
        swap = by_old.get(name)
        if swap is not None:
            old_tree = trees.get(name, DEFAULT)
            settings, branch = _bound(swap, template, template_tree, block, old_tree)
            problems += held.apply(waiting, swap.new[0], swap.new[2], settings, branch)
            name = swap.new[0]
            document[name] = {**block, AGENTS: {swap.new[2]: settings}}
            tree[name] = {**{key: below(old_tree, key) for key in block}, AGENTS: {swap.new[2]: branch}}
        elif name != source[0]:
            document[name] = block
            if name in trees:
                tree[name] = trees[name]
    return problems


def _bound(
    swap: Swap,
    template: dict[str, Any],
    template_tree: OriginTree,
    block: dict[Any, Any],
    old_tree: OriginTree,
) -> tuple[dict[str, Any], dict[Any, OriginTree]]:
    """A copy of the standalone block with the bindings of the old agent, and its origins."""
    settings = copy.deepcopy(template)
    branch: dict[Any, OriginTree] = {key: through(below(template_tree, key), swap.origin) for key in template}
    old = block[AGENTS][swap.old[2]]
    for key in CARRIED:
        if key in swap.carried:
            settings[key] = old[key]
            branch[key] = through(at(old_tree, (*swap.old[1:], key)), swap.origin)
    return settings, branch


def _drop_fronts(
    document: dict[Any, Any], tree: dict[Any, OriginTree], source: Agent, warn: Callable[[str], None]
) -> None:
    """Environment servers of the standalone agent alone go with it: those it replaces have their own."""
    fronts: dict[Any, dict[str, Path]] = {}
    for path, reference in renames.references(document):
        fronts.setdefault(path[0], {})[reference["name"]] = (*path, "name")
    for name, fronted in fronts.items():
        if source.name not in fronted:
            continue
        where = Origins(tree).where(*fronted[source.name])
        if len(fronted) > 1:
            raise AgentCompositionError(
                f"`{name}` fronts the standalone agent `{source.name}`, which is to replace other agents",
                where=where,
                hint="name an agent there that stays, or leave that environment server out",
            )
        warn(f"`{name}` is left out: it fronts the standalone agent `{source.name}` ({where})")
        del document[name]
        tree.pop(name, None)


def _follow(
    document: dict[Any, Any], tree: dict[Any, OriginTree], swaps: Sequence[Swap]
) -> dict[Path, Write]:
    """Environment servers keep their ids and front the new agents."""
    by_old = {swap.old[0]: swap for swap in swaps}
    written: dict[Path, Write] = {}
    for path, reference in renames.references(document):
        swap = by_old.get(reference["name"])
        where = (*path, "name")
        if swap is not None:
            reference["name"] = swap.new[0]
            renames.note(tree, where, swap.origin)
            written[where] = Write(swap.origin, swap.said, dotted(where), "rename")
    return written


def _refuse_outdated_routes(document: Mapping[Any, Any], swaps: Sequence[Swap], origins: Origins) -> None:
    renamed = {swap.old[0]: swap.new[0] for swap in swaps if swap.old[0] != swap.new[0]}
    outdated = [(path, agent) for path, agent in routing.destinations(document) if agent in renamed]
    if not outdated:
        return
    details = [
        f"`{dotted(path)}`: `{agent}` is now `{renamed[agent]}` ({origins.where(*path)})"
        for path, agent in outdated
    ]
    path, agent = outdated[0]
    raise AgentCompositionError(
        f"`{dotted(path)}` sends rows to `{agent}`, which is now `{renamed[agent]}`",
        where=origins.where(*path),
        details=details if len(details) > 1 else (),
        hint=f"name `{renamed[agent]}` there",
    )
