"""The settings of an evaluation (CONTRACT 9.2): from the merged document and the flags, checked, with places.

A flag that was typed beats the document, key by key; one that was not typed says nothing. Null is as if the
key were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from gymctl.config.checks.wording import rule, rules
from gymctl.config.model import Origin
from gymctl.config.names import suggestion
from gymctl.config.problems import Problems
from gymctl.config.tree.origins import dotted, place_of
from gymctl.contract.evaluation import DEFAULT, KEYS, EvaluationSettings
from gymctl.contract.health import CHECKS as HEALTH_CHECKS
from gymctl.errors import ConfigError

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that was typed, and the setting it stands for: `limit`, `responses_create_params.top_p`."""

    name: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Written:
    """Checked settings, and who wrote them."""

    settings: EvaluationSettings
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...] = ()

    def where(self, key: str) -> str | None:
        """`file:line` or the flag; of a key that was not written: of the one above it."""
        if key == f"agent_map.{DEFAULT}" and self.settings.agent_name is not None:
            key = "agent_name"
        return place_of(self.origins, key)


def read(document: Mapping[str, Any], origins: Mapping[str, Origin], flags: Sequence[Flag] = ()) -> Written:
    """The settings of an evaluation. Raises ConfigError, ConfigErrors for several."""
    raw, places, warnings = _laid_over(document, origins, flags)
    found = Problems()
    found.extend(_problems(raw, places))
    found.stop()
    written = Written(EvaluationSettings.model_validate(raw), places, tuple(warnings))
    settings = written.settings
    if settings.dispatch_budget_s is not None and settings.num_samples_in_parallel is None:
        raise ConfigError(
            "`dispatch_budget_s` needs `num_samples_in_parallel`",
            where=written.where("dispatch_budget_s"),
            hint="or the flag that stands for it: --concurrency",
        )
    return written


def problems(document: Mapping[str, Any], origins: Mapping[str, Origin]) -> Iterator[ConfigError]:
    """Everything that is wrong with the settings of an evaluation in a document, whatever flags may add."""
    raw, places, _ = _laid_over(document, origins, ())
    return _problems(raw, places)


def _laid_over(
    document: Mapping[str, Any], origins: Mapping[str, Origin], flags: Sequence[Flag]
) -> tuple[dict[str, Any], dict[str, Origin], list[str]]:
    """The keys of 9.2 that say something, under the flags, with places and warnings."""
    raw = {key: document[key] for key in KEYS if document.get(key) is not None}
    places = {name: place for name, place in origins.items() if name.split(".")[0].split("[")[0] in raw}
    warnings: list[str] = []
    if _is_zero(raw.get("limit")):
        del raw["limit"]
        if not any(flag.key == "limit" for flag in flags):
            place = place_of(places, "limit")
            warnings.append(f"`limit: 0` ({place}) means all rows, as in NeMo Gym; --limit 0 runs none")
    for flag in flags:
        key, _, inner = flag.key.partition(".")
        if not inner:
            raw[key] = flag.value
        elif isinstance(raw.setdefault(key, {}), Mapping):
            raw[key] = {**raw[key], inner: flag.value}
        places[flag.key] = Origin(flag.name)
    return raw, places, warnings


def _is_zero(value: object) -> bool:
    if not isinstance(value, (int, float, str)) or isinstance(value, bool):
        return False
    try:
        return float(value) == 0
    except ValueError:
        return False


def _problems(raw: Mapping[str, Any], places: Mapping[str, Origin]) -> Iterator[ConfigError]:
    try:
        settings = EvaluationSettings.model_validate(raw)
    except ValidationError as errors:
        for error in errors.errors():
            yield _explained(raw, error["loc"], rule(error), error["input"], places)
        return
    yield from _params_problems(raw, settings.responses_create_params, places)
    at: Callable[[str], str | None] = Written(settings, places).where
    default, agent = settings.agent_map.get(DEFAULT), settings.agent_name
    if agent is not None and default is not None and default != agent:
        yield ConfigError(
            f"`agent_name` is `{agent}`, but `agent_map.{DEFAULT}` is `{default}`",
            where=at("agent_name"),
            hint=f"keep one of them; the other is at {place_of(places, f'agent_map.{DEFAULT}')}",
        )
    for key, agents in settings.fan_out.items():
        if len(set(agents)) < len(agents) or not agents:
            found = "names an agent twice" if agents else "is an empty list, and its rows would not be run"
            hint = "num_repeats repeats a row" if agents else "leave the key out"
            yield ConfigError(f"`fan_out.{key}` {found}", where=at(f"fan_out.{key}"), hint=hint)
    for check in settings.health_check_ignored_checks:
        if check not in HEALTH_CHECKS:
            yield ConfigError(
                f"`{check}` in `health_check_ignored_checks` is no health check",
                where=at("health_check_ignored_checks"),
                hint=suggestion(check, HEALTH_CHECKS, noun="known"),
            )
    mode = settings.environment_routing_mode
    needed = {"legacy": "environment_server_name", "taskset": "environment_server_routes"}.get(mode)
    if needed is not None and not getattr(settings, needed):
        yield ConfigError(
            f"`environment_routing_mode: {mode}` needs `{needed}`", where=at("environment_routing_mode")
        )


def _params_problems(
    raw: Mapping[str, Any], params: Mapping[str, Any], places: Mapping[str, Origin]
) -> Iterator[ConfigError]:
    """What every agent would refuse with each rollout."""
    if not params:
        return
    from gymctl.contract.responses import ResponsesCreateParams

    try:
        ResponsesCreateParams.model_validate({"input": "", **params})
    except ValidationError as errors:
        for name, group in groupby(errors.errors(), key=lambda error: error["loc"][0]):
            first, *others = group  # several: what the members of a union want
            key = f"responses_create_params.{name}"
            if first["type"] == "extra_forbidden":
                hint = suggestion(str(name), ResponsesCreateParams.model_fields, noun="allowed")
                yield ConfigError(f"`{key}` is no parameter", where=place_of(places, key), hint=hint)
            else:
                loc = ("responses_create_params", *(first["loc"][:1] if others else first["loc"]))
                yield _explained(raw, loc, rules([first, *others]), first["input"], places)


def _explained(
    raw: Mapping[str, Any], loc: tuple[int | str, ...], must: str, value: object, places: Mapping[str, Origin]
) -> ConfigError:
    """With the key as it was written: `num_repeats: 0` has no `_default` in it."""
    path: list[int | str] = []
    node: Any = raw
    for step in loc:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            break
        path.append(step)
    key = dotted(path)
    shown = str(value)
    shown = shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}…"
    return ConfigError(f"`{key}` {must}, got `{shown}`", where=place_of(places, key))
