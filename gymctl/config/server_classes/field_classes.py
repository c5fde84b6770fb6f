"""The fields of one pydantic class, told from its text and that of its bases."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pydantic

from gymctl.config.server_classes.foreign_bases import FOREIGN
from gymctl.config.server_classes.python_modules import Found, Module, Modules, Outside
from gymctl.config.server_classes.python_types import Types, constrained

Extra = Literal["ignore", "forbid", "allow"]
_ABSENT: Any = object()
_PLAIN_BASES = frozenset({"pydantic.BaseModel", "typing.Generic", "abc.ABC"})
_KNOWN_SETTINGS = frozenset(
    {"extra", "frozen", "arbitrary_types_allowed", "validate_assignment", "validate_default"}
    | {"use_attribute_docstrings", "protected_namespaces", "strict", "str_strip_whitespace"}
)
_EARLY = ("before", "wrap", "plain")
"""Validators that see a value before its type does: what they let through, the annotation does not tell."""
_DECIDES = frozenset({"__init__", "__new__", "model_validate", "__get_pydantic_core_schema__"})


@dataclass(frozen=True)
class ClassField:
    """One field: how it is written in YAML, and what the class says about it."""

    key: str
    annotation: str
    type: Any = Any
    """The type with its limits; Any when the text does not tell."""
    is_required: bool = True
    default: Any = None
    """Of a field that is not required, when it is a plain value; otherwise None."""
    description: str | None = None


@dataclass(frozen=True)
class FieldClass:
    name: str
    fields: Mapping[str, ClassField] = field(default_factory=dict)
    extra: Extra = "ignore"
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_open: bool = False
    """It may read keys that are not among `fields`."""

    def opened(self) -> FieldClass:
        return replace(self, is_open=True)


class FieldClasses:
    """Reads classes, each once."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._types = Types(modules, self._nested)
        self._read: dict[int, FieldClass] = {}

    def read(self, found: Found | Outside) -> FieldClass:
        if isinstance(found, Outside):
            return _outside(found.dotted)
        node = found.node
        if not isinstance(node, ast.ClassDef):
            return FieldClass("", is_open=True)
        if id(node) not in self._read:
            self._read[id(node)] = FieldClass(node.name, is_open=True)  # while it is read: a circle
            self._read[id(node)] = self._class(found.module, node)
        return self._read[id(node)]

    def _nested(self, found: Found) -> Any:
        """The type of a field that is itself such a class."""
        fields = self.read(found)
        return Any if fields.is_open else replica(fields)

    def _class(self, module: Module, node: ast.ClassDef) -> FieldClass:
        made = FieldClass(node.name, is_open=bool(node.decorator_list) or not node.bases)
        for base in reversed(node.bases):
            made = _joined(made, self._base(module, base))
        made = _configured(made, [(keyword.arg, keyword.value) for keyword in node.keywords])
        fields = dict(made.fields)
        body = node.body
        for index, statement in enumerate(body):
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name)):
                    own = self._field(module, statement, body[index + 1 : index + 2])
                    if own is not None:
                        fields[name] = own
                case ast.Assign(targets=[ast.Name(id="model_config")], value=value):
                    made = _configured(made, _pairs(value))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    made, fields = _validated(made, fields, statement)
                case ast.Expr() | ast.Pass() | ast.Assign() | ast.AnnAssign():
                    pass
                case _:
                    made = made.opened()
        return replace(made, fields=fields)

    def _base(self, module: Module, base: ast.expr) -> FieldClass:
        meaning = self._modules.meaning(module, base.value if isinstance(base, ast.Subscript) else base)
        return FieldClass("", is_open=True) if meaning is None else self.read(meaning)

    def _field(
        self, module: Module, statement: ast.AnnAssign, following: list[ast.stmt]
    ) -> ClassField | None:
        assert isinstance(statement.target, ast.Name)
        name, annotation = statement.target.id, ast.unparse(statement.annotation)
        if name.startswith("_") or name == "model_config" or "ClassVar" in annotation:
            return None
        made = ClassField(
            name,
            annotation,
            self._types.read(module, statement.annotation),
            description=_docstring(following),
        )
        if statement.value is None:
            return made
        call = statement.value
        if isinstance(call, ast.Call) and _is_field(self._modules, module, call):
            constraints = self._types.constraints(module, call)
            kind = Any if constraints is None else constrained(made.type, constraints)
            return _with_arguments(replace(made, type=kind), call)
        return replace(made, is_required=False, default=_value(call))


def _outside(dotted: str) -> FieldClass:
    if dotted in _PLAIN_BASES:
        return FieldClass(dotted)
    module, _, name = dotted.rpartition(".")
    known = FOREIGN.get(name) if module.startswith("nemo_gym") else None
    if known is None:
        return FieldClass(name, is_open=True)
    fields = {
        key: ClassField(key, annotation, kind, is_required=False)
        for key, (annotation, kind) in known.fields.items()
    }
    return FieldClass(name, fields, known.extra)


def _joined(made: FieldClass, base: FieldClass) -> FieldClass:
    return replace(
        made,
        fields={**made.fields, **base.fields},
        extra=base.extra if base.extra != "ignore" else made.extra,
        settings={**made.settings, **base.settings},
        is_open=made.is_open or base.is_open,
    )


def _is_field(modules: Modules, module: Module, call: ast.Call) -> bool:
    return modules.meaning(module, call.func) == Outside("pydantic.Field")


def _with_arguments(made: ClassField, call: ast.Call) -> ClassField:
    """What `Field(…)` says beside the limits."""
    default = call.args[0] if call.args else None
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="default", value=value):
                default = value
            case ast.keyword(arg="default_factory"):
                made = replace(made, is_required=False)
            case ast.keyword(arg="description"):
                text = _value(keyword.value)
                made = replace(made, description=text if isinstance(text, str) else made.description)
            case ast.keyword(arg="alias" | "validation_alias"):
                key = _value(keyword.value)
                made = replace(made, key=key if isinstance(key, str) else "")
    is_given = default is not None and not (isinstance(default, ast.Constant) and default.value is ...)
    return replace(made, is_required=False, default=_value(default)) if is_given and default else made


def _configured(made: FieldClass, settings: list[tuple[str | None, ast.expr]]) -> FieldClass:
    for name, expression in settings:
        value = _value(expression, _ABSENT)
        if name not in _KNOWN_SETTINGS or value is _ABSENT:
            made = made.opened()
        elif name == "extra":
            made = replace(made, extra=value, is_open=made.is_open or value == "allow")
        else:
            made = replace(made, settings={**made.settings, name: value})
    return made


def _pairs(value: ast.expr) -> list[tuple[str | None, ast.expr]]:
    """`ConfigDict(a=1)` or `{"a": 1}`; something else says nothing that we can read."""
    match value:
        case ast.Call(args=[], keywords=keywords):
            return [(keyword.arg, keyword.value) for keyword in keywords]
        case ast.Dict(keys=keys, values=values):
            return [
                (str(key.value) if isinstance(key, ast.Constant) else None, item)
                for key, item in zip(keys, values, strict=True)
            ]
    return [(None, value)]


def _validated(
    made: FieldClass, fields: dict[str, ClassField], function: ast.FunctionDef | ast.AsyncFunctionDef
) -> tuple[FieldClass, dict[str, ClassField]]:
    if function.name in _DECIDES:
        return made.opened(), fields
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, (ast.Name, ast.Attribute)):
            continue
        called = decorator.func.id if isinstance(decorator.func, ast.Name) else decorator.func.attr
        mode = next((_value(item.value) for item in decorator.keywords if item.arg == "mode"), "after")
        if called == "model_validator" and mode in _EARLY:
            return made.opened(), fields
        if called in ("root_validator", "validator") or (called == "field_validator" and mode in _EARLY):
            names = {_value(argument) for argument in decorator.args}
            fields = {
                name: replace(item, type=Any) if {name, "*"} & names or called != "field_validator" else item
                for name, item in fields.items()
            }
    return made, fields


def _docstring(following: list[ast.stmt]) -> str | None:
    match following:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return " ".join(text.split())
    return None


def _value(expression: ast.expr, otherwise: Any = None) -> Any:
    try:
        return ast.literal_eval(expression)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return otherwise


def replica(fields: FieldClass, without: Collection[str] = ()) -> Any:
    """A pydantic class that refuses what the fields' types and limits do; no validators."""
    made: dict[str, Any] = {}
    for index, item in enumerate(fields.fields.values()):
        if not item.key or item.key in without:
            continue
        default = ... if item.is_required else item.default
        # Names of ours and the YAML key as alias: a field may be called `copy` or `json`.
        made[f"field_{index}"] = (
            item.type,
            pydantic.Field(default=default, alias=item.key, title=item.key, description=item.description),
        )
    settings: Any = {**fields.settings, "extra": fields.extra, "validate_default": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pydantic.create_model(
            fields.name or "Block", __config__=pydantic.ConfigDict(**settings), **made
        )
