"""`GET /gymctl/openapi.json`: every route of a server as OpenAPI 3.1, with the schemas of what is posted.

`GET /openapi.json` is another document: clients offer each of its POST paths to a model, so it holds tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from starlette.routing import BaseRoute, Route

REF = "#/components/schemas/{model}"


def document(title: str, routes: Iterable[BaseRoute], bodies: Mapping[str, Any]) -> dict[str, Any]:
    """bodies: by path, the type of what is posted there; a path without one takes any object."""
    plain = [route for route in routes if isinstance(route, Route) and "{" not in route.path]
    wanted = {path: TypeAdapter(body) for path, body in bodies.items()}
    inputs = [(path, "validation", adapter) for path, adapter in wanted.items()]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=REF)  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for route in plain:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            schema = schemas.get((route.path, "validation"), {"type": "object"})  # type: ignore[call-overload]
            paths.setdefault(route.path, {})[method.lower()] = _operation(method, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }


def _operation(method: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    answers = {"200": {"description": "As the contract says."}}
    if method != "POST":
        return {"responses": answers}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            **answers,
            "422": {"description": "The body does not fit."},
            "500": {"description": "A JSON string: what went wrong."},
        },
    }
