"""An annotation in the text of a file -> the type itself, as far as it is made of types we know by name.

What is not known is `Any`: it may be anything, and nothing is refused because of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import pydantic

from gymctl.config.server_classes.python_modules import Found, Module, Modules, Outside

_LONGEST_CHAIN = 20

_NAMED: dict[str, Any] = {
    "builtins.str": str,
    "builtins.int": int,
    "builtins.float": float,
    "builtins.bool": bool,
    "builtins.dict": dict,
    "builtins.list": list,
    "typing.Dict": dict,
    "typing.List": list,
    "pathlib.Path": Path,
    **{
        f"pydantic.{name}": getattr(pydantic, name)
        for name in (
            *("SecretStr", "StrictStr", "StrictInt", "StrictFloat", "StrictBool"),
            *("PositiveInt", "NegativeInt", "NonNegativeInt", "NonPositiveInt"),
            *("PositiveFloat", "NegativeFloat", "NonNegativeFloat", "NonPositiveFloat"),
        )
    },
}
_CONSTRAINTS = frozenset(
    {"gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "strict", "allow_inf_nan"}
)

ModelOf = Callable[[Found], Any]
"""A class of the file -> a pydantic class with the same fields, or Any."""


class Types:
    def __init__(self, modules: Modules, model_of: ModelOf) -> None:
        self._modules = modules
        self._model_of = model_of

    def read(self, module: Module, annotation: ast.expr, depth: int = _LONGEST_CHAIN) -> Any:
        """The type that an annotation says, `Any` where the text does not tell."""
        if depth == 0:
            return Any
        match annotation:
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=str(text)):
                return self._quoted(module, text, depth)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return _either([self.read(module, side, depth - 1) for side in (left, right)])
            case ast.Subscript(value=base, slice=inner):
                return self._subscript(module, base, inner, depth)
        meaning = self._modules.meaning(module, annotation)
        if isinstance(meaning, Outside):
            return _NAMED.get(meaning.dotted, Any)
        if meaning is None:
            return Any
        if isinstance(meaning.node, ast.ClassDef):
            return self._model_of(meaning)
        return self.read(meaning.module, meaning.node, depth - 1)

    def constraints(self, module: Module, call: ast.expr) -> dict[str, Any] | None:
        """The literal constraints of `Field(…)`; None when it is not that, or holds what we cannot read."""
        if not isinstance(call, ast.Call) or self._modules.meaning(module, call.func) != Outside(
            "pydantic.Field"
        ):
            return None
        found: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg == "discriminator":
                return None
            if keyword.arg in _CONSTRAINTS:
                try:
                    found[keyword.arg] = ast.literal_eval(keyword.value)
                except ValueError:
                    return None
        return found

    def _quoted(self, module: Module, text: str, depth: int) -> Any:
        try:
            return self.read(module, ast.parse(text, mode="eval").body, depth - 1)
        except (SyntaxError, ValueError):
            return Any

    def _subscript(self, module: Module, base: ast.expr, inner: ast.expr, depth: int) -> Any:
        meaning = self._modules.meaning(module, base)
        name = meaning.dotted if isinstance(meaning, Outside) else ""
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name in ("typing.Literal", "typing_extensions.Literal"):
            return _literal(parts)
        if name in ("typing.Annotated", "typing_extensions.Annotated"):
            return self._annotated(module, parts, depth)
        types = [self.read(module, part, depth - 1) for part in parts]
        match name, types:
            case "typing.Optional", [only]:
                return _either([only, None])
            case "typing.Union", _:
                return _either(types)
            case (("builtins.list" | "typing.List"), [item]):
                return list[item]
            case (("builtins.dict" | "typing.Dict"), [key, value]):
                return dict[key, value]
        return Any

    def _annotated(self, module: Module, parts: list[ast.expr], depth: int) -> Any:
        kind = self.read(module, parts[0], depth - 1)
        for part in parts[1:]:
            constraints = self.constraints(module, part)
            if constraints is None:
                return Any
            kind = constrained(kind, constraints)
        return kind


def constrained(kind: Any, constraints: dict[str, Any]) -> Any:
    """The type with its limits; Any when pydantic cannot put these limits on this type."""
    if not constraints or kind is Any:
        return kind
    made: Any = Annotated[kind, pydantic.Field(**constraints)]
    try:
        pydantic.TypeAdapter(made)
    except (TypeError, pydantic.errors.PydanticUserError, pydantic.ValidationError):
        return Any
    return made


def _either(types: list[Any]) -> Any:
    if any(kind is Any for kind in types):
        return Any
    made: Any = Union[tuple(types)]  # noqa: UP007 - made at run time
    return made


def _literal(parts: list[ast.expr]) -> Any:
    try:
        values = tuple(ast.literal_eval(part) for part in parts)
    except ValueError:
        return Any
    if not all(value is None or isinstance(value, (str, int, bool)) for value in values):
        return Any
    made: Any = Literal[values]
    return made
