"""Scripts: which turns a scripted model takes, read from a file or from a row's metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from gymctl.errors import ConfigError


class Call(BaseModel):
    """One tool call. `arguments` is an object, or a string that is sent as it is (to send broken JSON)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Turn(BaseModel):
    """One answer of the model; in a file, a bare string is a turn that only says it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def _turn(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


class Script(BaseModel):
    """Turns for the requests whose first user message contains `when`; an empty `when` fits every request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    when: str = ""
    turns: tuple[Turn, ...] = Field(min_length=1)

    @field_validator("turns", mode="before")
    @classmethod
    def _strings_are_turns(cls, value: Any) -> Any:
        return [_turn(entry) for entry in value] if isinstance(value, list | tuple) else value

    def turn(self, outputs: int, answers: int = 0) -> Turn:
        """The turn after `outputs` tool results and `answers` messages; the last one is repeated.

        A turn with calls is done when each has its result, one without when its message has been said.
        """
        for turn in self.turns:
            if outputs < len(turn.calls) or (not turn.calls and answers <= 0):
                return turn
            outputs -= len(turn.calls)
            if turn.text or not turn.calls:
                answers -= 1
        return self.turns[-1]


def from_metadata(text: str) -> Script:
    """`metadata.script` of a row: a JSON list of turns. Raises ValueError that says what is wrong with it."""
    try:
        return Script(turns=json.loads(text))
    except (json.JSONDecodeError, ValidationError) as error:
        raise ValueError(
            f"`metadata.script` is no list of turns: {_first(error)}; got {text[:200]!r}"
        ) from error


def from_file(path: Path) -> Sequence[Script]:
    """A YAML list of scripts, or JSONL with one script a line. Raises ConfigError with file and line."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"the script file cannot be read: {error.strerror}", where=str(path)) from error
    if path.suffix == ".jsonl":
        return [
            _line(line, f"{path}:{number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
    try:
        return TypeAdapter(list[Script]).validate_python(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"no list of scripts: {_first(error)}", where=str(path)) from error


def _line(line: str, where: str) -> Script:
    try:
        return Script.model_validate_json(line)
    except ValidationError as error:
        raise ConfigError(f"no script: {_first(error)}", where=where) from error


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
