"""Prompt files (CONTRACT 8.6): `user` and maybe `system`, filled from a row's own fields."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gymctl.contract.rollout import Row
from gymctl.errors import ConfigError

USED = "prompt_config_used"
"""On rows that were rendered once and for all: the prompt file as it was named."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Templates of `str.format_map`: `{question}` is a field of the row, `{{` and `}}` are braces."""

    name: str
    """The file as it was named."""
    user: str
    system: str | None = None

    @classmethod
    def read(cls, path: Path, name: str | None = None) -> Prompt:
        """Raises ConfigError naming the file."""
        try:
            document = yaml.safe_load(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"the prompt file cannot be read: {error.strerror}", where=str(path)) from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = str(path) if mark is None else f"{path}:{mark.line + 1}:{mark.column + 1}"
            raise ConfigError("the prompt file is not YAML", where=place) from error
        if not isinstance(document, Mapping) or not isinstance(document.get("user"), str):
            raise ConfigError(
                "a prompt file needs `user`, a text", where=str(path), hint='user: "{question}"'
            )
        system = document.get("system")
        if system is not None and not isinstance(system, str):
            raise ConfigError("`system` of a prompt file must be a text", where=str(path))
        for key in ("user", "system"):
            _check_template(document.get(key) or "", f"{path}: `{key}`")
        return cls(name or str(path), document["user"], system)

    def applied(self, row: Row) -> Row:
        """The row with `input` made from its fields. Raises ConfigError, without a place."""
        params = row.get("responses_create_params") or {}
        if params.get("input"):
            raise ConfigError(
                f"this row has an `input` already, and the prompt file {self.name} would replace it",
                hint="leave `input` out of the rows, or the prompt file out of the run",
            )
        messages = [
            {"role": role, "content": self._filled(template, row)}
            for role, template in (("system", self.system), ("user", self.user))
            if template is not None
        ]
        return {**row, "responses_create_params": {**params, "input": messages}}

    def _filled(self, template: str, row: Row) -> str:
        try:
            return template.format_map(row)
        except KeyError as error:
            fields = ", ".join(key for key in row if key != "responses_create_params")
            raise ConfigError(
                f"the prompt file {self.name} uses `{error.args[0]}`, which this row does not have",
                hint=f"its fields: {fields or 'none'}",
            ) from None
        except (ValueError, IndexError, AttributeError, TypeError) as error:
            raise ConfigError(f"the prompt file {self.name} cannot be filled: {error}") from None


def _check_template(template: str, where: str) -> None:
    """A brace too many is found when the file is read, not with the first row."""
    try:
        fields: list[Any] = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError(
            f"this is no template: {error}", where=where, hint="write braces twice: {{ and }}"
        ) from None
    for name in fields:
        if not name or name.isdigit():
            raise ConfigError(
                f"`{{{name}}}` names no field of a row",
                where=where,
                hint="{question} is a field, {{}} are braces",
            )
