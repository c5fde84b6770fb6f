"""How a Compose project is written: YAML that a person can read, and run without gymctl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import yaml

from gymctl.compose.model import Project

HEADER = """\
# Project {name}, written by gymctl; the next `gymctl up` writes it again.
# By hand:  docker compose -f {path} up
#           docker compose -f {path} down
# It needs parts/ (mode 0600), what each server is told: there until gymctl takes the project down.
# No secret stands in this file.
"""


def dump(project: Project, *, path: str = "compose.yaml") -> str:
    """The file's text. Every `$` is doubled: Compose would put the value of a variable in its place."""
    text = yaml.dump(
        _document(project),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=1000,
    )
    return HEADER.format(name=project.name, path=path) + text


class _Dumper(yaml.SafeDumper):
    """No anchors: a value that stands twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _document(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: _document(item) for name, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {key: _document(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_document(item) for item in value]
    if isinstance(value, str):
        return value.replace("$", "$$")
    return value
