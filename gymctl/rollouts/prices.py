"""What a rollout cost: prices of a dated file of the user's own, never invented ones.

    date: 2026-11-02            # when somebody looked them up
    models:
      luna-4: {input: 2.5, cached_input: 0.25, output: 10}    # USD per million tokens

A model without a price has no cost: its part of the sum is told as unknown. Only the usage in a record's
`response` is known here, which is the agent's; what a judge or a simulated user spends is not in it.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gymctl.errors import ConfigError
from gymctl.metrics.usage import Usage, recorded_calls

_MILLION = 1e6
_LOCAL = frozenset({"llama_cpp_model", "scripted_model"})
"""Models that run here: without a price in the file there is nothing to say about their cost."""
EXAMPLE = "models: {NAME: {input: 2.5, cached_input: 0.25, output: 10}}"


def default_path() -> Path:
    return Path("~/.config/gymctl/prices.yaml").expanduser()


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_number)]


class ModelPrice(BaseModel):
    """USD per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    """None: cached tokens cost what others cost."""

    def of(self, usage: Usage) -> float:
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input - usage.cached
        return (fresh * self.input + usage.cached * cached + usage.output * self.output) / _MILLION


class Prices(BaseModel):
    """One price file."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    date: datetime.date
    models: dict[str, ModelPrice]

    @classmethod
    def load(cls, path: Path) -> Prices:
        """Raises ConfigError."""
        try:
            value = yaml.safe_load(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"the price file cannot be read: {error.strerror}", where=str(path), hint=EXAMPLE
            ) from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
            raise ConfigError("the price file is no YAML", where=place, details=[str(error)[:200]]) from error
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            details = [
                f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}"
                for problem in error.errors()
            ]
            raise ConfigError(
                "the price file cannot be used", where=str(path), details=details, hint=EXAMPLE
            ) from error


def chosen(path: Path | None) -> Prices | None:
    """The price file that is named, else the user's own if there is one. Raises ConfigError."""
    where = path or default_path()
    return Prices.load(where) if path is not None or where.is_file() else None


@dataclass(frozen=True, slots=True)
class ModelServer:
    """What a configuration says of one."""

    name: str
    """Of its model."""
    implementation: str

    @classmethod
    def of(cls, implementation: str, settings: Mapping[str, Any]) -> ModelServer:
        name = settings.get("openai_model") or settings.get("model") or implementation
        return cls(str(name), implementation)


@dataclass(frozen=True, slots=True)
class Pricing:
    """The cost of a record (what Tally calls `price`)."""

    prices: Prices | None = None
    model: str | None = None
    """What the configuration calls the model, for answers that call it by another name or by none."""

    @classmethod
    def of_run(cls, prices: Prices | None, models: Collection[ModelServer]) -> Pricing | None:
        """Of the models that agents ask; None when there is nothing to be said about cost."""
        names = {model.name for model in models}
        made = cls(prices, next(iter(names)) if len(names) == 1 else None)
        is_local = bool(models) and all(model.implementation in _LOCAL for model in models)
        return None if is_local and not any(made.of(name) for name in names) else made

    def __call__(self, record: Mapping[str, Any], usage: Usage) -> float | None:
        response = record.get("response") or record.get("_ng_failure_partial_response")
        if isinstance(response, dict):
            named = response.get("model")
        else:
            called = {call.get("model") for call in recorded_calls(record)}
            named = next(iter(called)) if len(called) == 1 else None
            if len(called) > 1:
                return None  # a judge's calls, too: whose tokens they are is not known here
        for name in (named, self.model):
            price = self.of(name) if isinstance(name, str) else None
            if price is not None:
                return price.of(usage)
        return None

    @property
    def date(self) -> str | None:
        return None if self.prices is None else self.prices.date.isoformat()

    def of(self, model: str) -> ModelPrice | None:
        return None if self.prices is None else self.prices.models.get(model)
