"""What a handler asks for: its signature read once at start, its arguments found per request.

A parameter whose type is a SessionState gets the session's object of that class. The rest is the caller's:
the arguments of a tool, or one model for the whole row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from gymctl.servers.resources.state import SessionState, SessionStore

F = TypeVar("F", bound=Callable[..., Any])

_TOOL_MARK = "__gymctl_tool__"


def tool(function: F) -> F:
    """Serve a method as `POST /<its name>`.

    Its parameters are the tool's arguments, its docstring the description that the model reads, its return
    value the answer: a string as text, anything else as JSON. An `async def` runs in the event loop and must
    not block it; a plain `def` runs in a thread (see `ResourcesServer.handler_threads`).
    """
    setattr(function, _TOOL_MARK, True)
    return function


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a handler, sorted by who fills them."""

    own: Mapping[str, inspect.Parameter]
    hints: Mapping[str, Any]
    states: Mapping[str, type[SessionState]]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Signature:
        hints = get_type_hints(function, include_extras=True)
        parameters = {
            name: parameter
            for name, parameter in inspect.signature(function).parameters.items()
            if name != "self" and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        states = {name: hints[name] for name in parameters if _is_state(hints.get(name))}
        own = {name: parameter for name, parameter in parameters.items() if name not in states}
        return cls(own, hints, states)

    def state_of(self, store: SessionStore, session_id: str) -> dict[str, SessionState]:
        return {name: store.get(session_id, state_class) for name, state_class in self.states.items()}


def _is_state(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, SessionState)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of a resources server."""

    name: str
    description: str
    arguments: type[BaseModel]
    signature: Signature

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        name = function.__name__
        signature = Signature.of(function)
        fields: dict[str, Any] = {}
        for parameter in signature.own.values():
            default = ... if parameter.default is parameter.empty else parameter.default
            # The alias keeps names that a model may not have as a field, such as `copy` or `_id`.
            fields[f"argument_{parameter.name}"] = (
                signature.hints.get(parameter.name, Any),
                Field(default, alias=parameter.name),
            )
        config = ConfigDict(extra="ignore", protected_namespaces=())
        arguments = create_model(name, __config__=config, **fields)
        return cls(name, inspect.getdoc(function) or "", arguments, signature)

    def keywords(self, arguments: BaseModel) -> dict[str, Any]:
        return {name: getattr(arguments, f"argument_{name}") for name in self.signature.own}

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        schema = _untitled(self.arguments.model_json_schema())
        return {"properties": {}, **schema}

    def as_function(self) -> dict[str, Any]:
        """The entry for `responses_create_params.tools` of a dataset row."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": False,
        }


def tools_of(server_class: type) -> list[Tool]:
    """The tools of a class, parents' included, in the order in which they are written."""
    found: dict[str, Tool] = {}
    for parent in reversed(server_class.__mro__):
        for name, member in vars(parent).items():
            if getattr(member, _TOOL_MARK, False):
                found[name] = Tool.of(member)
    return list(found.values())


def _untitled(schema: Any) -> Any:
    """Without the titles that pydantic makes up from names; a property called `title` stays."""
    if isinstance(schema, list):
        return [_untitled(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _untitled(entry) for name, entry in value.items()}
        if key in ("properties", "$defs")
        else _untitled(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
