"""Which agents and model servers a resources server accepts (CONTRACT 1.16).

It says so with `allowed_agents` and `allowed_model_types`: the side that scores knows what it can score. Both
gates are waived by `allow_unsupported_pairing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.config.checks.instances import Instance
from gymctl.config.problems import Problems
from gymctl.config.tree.agents import Agent
from gymctl.config.tree.interpolation import value_at
from gymctl.config.tree.origins import Origins, Path, dotted
from gymctl.contract.cassette import IMPLEMENTATION as CASSETTE
from gymctl.errors import ConfigError, UnsupportedAgentPairingError, UnsupportedModelPairingError

WAIVER = "allow_unsupported_pairing"
WAIVER_VARIABLE = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"
DUMMY = "dummy_model"
RESOURCES = "resources_servers"


@dataclass(frozen=True)
class _Rejected:
    agent: str
    resources_server: str
    allowed: list[str]
    where: str | None
    detail: str


def is_waived(document: Mapping[Any, Any], environ: Mapping[str, str]) -> bool:
    """Text counts as in the variable: anything but nothing, `0` and `false`."""
    value = value_at(document, (WAIVER,))
    return (value is not None and _is_on(str(value))) or _is_on(environ.get(WAIVER_VARIABLE, ""))


def _is_on(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false")


def agent_problems(
    implementation: str, targets: Iterable[Agent], document: Mapping[Any, Any], origins: Origins
) -> Iterator[ConfigError]:
    """One error that lists every target whose resources server does not accept the new agent."""
    restrictions, rejected = [], []
    for target in targets:
        name = value_at(document, (*target.path, "resources_server", "name"))
        found = _allowed(document, name, "allowed_agents", origins)
        if isinstance(found, ConfigError):
            yield found
        elif found is not None:
            allowed, where = found
            restrictions.append(allowed)
            if implementation not in allowed:
                detail = f"`{target.name}` uses `{name}`, which accepts {', '.join(allowed)} ({where})"
                rejected.append(_Rejected(target.name, str(name), allowed, where, detail))
    if rejected:
        yield UnsupportedAgentPairingError(
            f"the agent `{implementation}` cannot take the place of"
            f" {' and '.join(f'`{one.agent}`' for one in rejected)}:"
            f" {_servers(rejected)} would not score it correctly",
            where=rejected[0].where,
            details=[one.detail for one in rejected],
            hint=_remedy("--agent-type", restrictions),
        )


def check_models(
    found: Iterable[Instance],
    document: Mapping[Any, Any],
    origins: Origins,
    environ: Mapping[str, str],
    problems: Problems,
) -> None:
    """Report agents whose model server is not accepted by their resources server, unless that is waived."""
    if not is_waived(document, environ):
        problems.extend(_model_problems(found, document, origins))


def _model_problems(
    instances: Iterable[Instance], document: Mapping[Any, Any], origins: Origins
) -> Iterator[ConfigError]:
    """One error that lists every agent whose model server its resources server does not accept."""
    instances = list(instances)
    models = _models(instances)
    restrictions, rejected = [], []
    for agent in instances:
        resources, model = (_bound(agent, field) for field in ("resources_server", "model_server"))
        if agent.kind != "responses_api_agents" or models.get(model or "", DUMMY) == DUMMY:
            continue
        found = _allowed(document, resources, "allowed_model_types", origins)
        if isinstance(found, ConfigError):
            yield found
        elif found is not None:
            allowed, where = found
            restrictions.append(allowed)
            used = models[str(model)]
            if used not in allowed:
                detail = (
                    f"`{agent.name}` uses the model server `{model}` ({used}), and `{resources}` accepts"
                    f" {', '.join(allowed)} ({where})"
                )
                rejected.append(_Rejected(agent.name, str(resources), allowed, where, detail))
    if rejected:
        yield UnsupportedModelPairingError(
            f"the model server of {' and '.join(f'`{one.agent}`' for one in rejected)} is not one that"
            f" {_servers(rejected)} accepts",
            where=rejected[0].where,
            details=[one.detail for one in rejected],
            hint=_remedy("--model-type", restrictions),
        )


def _models(instances: Iterable[Instance]) -> dict[str, str]:
    """What answers under each name: of a cassette, the server that it records; of a replay, nobody knows."""
    found = {one.name: one for one in instances if one.kind == "responses_api_models"}
    models = {name: one.implementation for name, one in found.items()}
    for name, one in found.items():
        if one.implementation == CASSETTE:
            models[name] = models.get(_named(one.settings.get("model_server")) or "", DUMMY)
    return models


def _named(reference: object) -> str | None:
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else None


def _bound(agent: Instance, field: str) -> str | None:
    reference = agent.settings.get(field)
    kind = RESOURCES if field == "resources_server" else "responses_api_models"
    if not isinstance(reference, dict) or reference.get("type") != kind:
        return None
    name = reference.get("name")
    return name if isinstance(name, str) else None


def _allowed(
    document: Mapping[Any, Any], name: object, key: str, origins: Origins
) -> tuple[list[str], str | None] | ConfigError | None:
    """What the resources server declares, with its place; None when it accepts all."""
    block = document.get(name) if isinstance(name, str) else None
    inner = block.get(RESOURCES) if isinstance(block, dict) else None
    if not isinstance(inner, dict) or len(inner) != 1:
        return None
    path: Path = (name, RESOURCES, next(iter(inner)), key)  # type: ignore[assignment]
    declared = value_at(document, path)
    if not declared:
        return None
    where = origins.where(*path)
    if isinstance(declared, str):
        return [declared], where
    if not isinstance(declared, list):
        return ConfigError(f"`{dotted(path)}` must be a list of names, got `{declared}`", where=where)
    return [str(one) for one in declared], where


def _servers(rejected: Iterable[_Rejected]) -> str:
    return " and ".join(dict.fromkeys(f"`{one.resources_server}`" for one in rejected))


def _remedy(flag: str, restrictions: list[list[str]]) -> str:
    common = [name for name in restrictions[0] if all(name in other for other in restrictions[1:])]
    choice = f"choose {flag} {' or '.join(common)}" if common else "no single choice suits all of them"
    return f"{choice}; --allow-unsupported-pairing runs it nevertheless"
