"""Plain paths are looked up; what is not in the table, and what a handler refuses, is answered as before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gymctl.servers.stack.refusals import answer_refused
from gymctl.servers.stack.routing import PlainRoutes, plain
from gymctl.servers.stack.wire import invalid


class Busy(HTTPException):
    pass


async def hello(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def named(request: Request) -> Response:
    return PlainTextResponse(request.path_params["name"])


async def busy(request: Request) -> Response:
    raise Busy(503, "later", headers={"retry-after": "1"})


async def strict(request: Request) -> Response:
    raise invalid("missing", ("city",), "Field required", {})


ROUTES = [
    Route("/hello", hello, methods=["POST"]),
    Route("/by/{name}", named, methods=["POST"]),
    Route("/busy", busy, methods=["POST"]),
    Route("/strict", strict, methods=["POST"]),
    Route("/seen", hello, methods=["GET"]),
]


async def ask(method: str, path: str) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers, body."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(PlainRoutes, table=plain(ROUTES))],
        exception_handlers={HTTPException: answer_refused},
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(part["body"] for part in sent[1:])


def test_only_plain_paths_are_in_the_table() -> None:
    paths = {("POST", "/hello"), ("POST", "/busy"), ("POST", "/strict"), ("GET", "/seen"), ("HEAD", "/seen")}
    assert set(plain(ROUTES)) == paths


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("POST", "/hello", 200, b"x"),
        ("GET", "/seen", 200, b"x"),
        ("POST", "/by/me", 200, b"me"),
        ("GET", "/hello", 405, b'{"detail":"Method Not Allowed"}'),
        ("POST", "/nowhere", 404, b'{"detail":"Not Found"}'),
    ],
)
async def test_a_request_reaches_its_route(method: str, path: str, status: int, body: bytes) -> None:
    answer = await ask(method, path)
    assert (answer[0], answer[2]) == (status, body)


async def test_a_refusal_is_answered_with_its_status_and_headers() -> None:
    status, headers, body = await ask("POST", "/busy")
    assert (status, headers[b"retry-after"], body) == (503, b"1", b'{"detail":"later"}')


async def test_a_body_that_does_not_fit_is_answered_with_what_is_wrong() -> None:
    status, _, body = await ask("POST", "/strict")
    assert status == 422
    assert json.loads(body)["detail"][0]["loc"] == ["body", "city"]


def test_only_coroutine_functions_of_plain_routes_are_looked_up():
    class Own(Route):
        """Like FastAPI's, whose endpoint does not take a request."""

    class App:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def blocking(request: Request) -> Response:
        return PlainTextResponse("")

    routes = [
        Own("/own", hello, methods=["POST"]),
        Route("/app", App(), methods=["POST"]),
        Route("/blocking", blocking, methods=["POST"]),
        Route("/hello", hello, methods=["POST"]),
    ]
    assert plain(routes) == {("POST", "/hello"): hello}


def test_the_first_route_of_a_path_counts():
    first, second = Route("/a", hello, methods=["POST"]), Route("/a", busy, methods=["POST", "PUT"])
    assert plain([first, second]) == {("POST", "/a"): hello, ("PUT", "/a"): busy}
