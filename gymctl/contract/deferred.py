"""Answers that come later, all on one stream (RFC 7240 `Prefer: respond-async`): headers and records.

    client                                              server
    GET /gymctl/results/<stream>?after=0        ───▶    200, `x-gymctl-since`, and then records, for ever
    POST /run, `prefer: respond-async`,         ───▶    202, `preference-applied: respond-async`
         `x-gymctl-stream`, `x-gymctl-call`
                                                ◀───    record: cursor, call, status, headers, body
    GET /gymctl/results/<stream>?after=<cursor> ───▶    the same `x-gymctl-since`: nothing was lost
    POST /gymctl/results/<stream>               ───▶    the body is a cursor: all up to it was read
    DELETE /gymctl/results/<stream>             ───▶    nobody waits for the calls in the body, or for any

A server offers this on `/livez`. A record is a line of JSON that says how long its body is, the body, `\\n`.
"""

from __future__ import annotations

from collections.abc import Iterator
from http.client import responses
from typing import Any, NamedTuple

import orjson

RESULTS_HEADER = "x-gymctl-results"
"""On `/livez`: the path below which streams of results are."""
RESULTS_PATH = "/gymctl/results/"
STREAM_HEADER = "x-gymctl-stream"
"""Name of the stream on which the answer to this request may come."""
CALL_HEADER = "x-gymctl-call"
"""Which of the stream's calls this is."""
READ_HEADER = "x-gymctl-read"
"""Results up to this cursor were read and may be forgotten."""
SINCE_HEADER = "x-gymctl-since"
"""A stream's life: another value means that the calls made on it before are lost."""
PREFER_HEADER = "prefer"
APPLIED_HEADER = "preference-applied"
RESPOND_ASYNC = "respond-async"

Headers = tuple[tuple[bytes, bytes], ...]


class Result(NamedTuple):
    """The answer to one call, as the plain answer would have been."""

    cursor: int
    """1, 2, 3 … in the order in which calls were finished."""
    call: str
    status: int
    headers: Headers
    body: bytes

    @property
    def reason(self) -> str:
        return responses.get(self.status, "")

    def line(self) -> bytes:
        """What stands before the body."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers]
        said = {
            "cursor": self.cursor,
            "call": self.call,
            "status": self.status,
            "headers": headers,
            "length": len(self.body),
        }
        return orjson.dumps(said) + b"\n"


class Results:
    """Cuts what arrives into results; give it the pieces in order."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._head: dict[str, Any] | None = None

    def feed(self, piece: bytes) -> Iterator[Result]:
        """The results that are complete now. Raises ValueError or KeyError for what is no record."""
        received = self._received
        received += piece
        start = 0
        try:
            while True:
                if self._head is None:
                    end = received.find(b"\n", start)
                    if end < 0:
                        return
                    self._head = orjson.loads(received[start:end])
                    start = end + 1
                    continue
                head = self._head
                length: int = head["length"]
                if len(received) - start <= length:
                    return
                self._head = None
                body = bytes(received[start : start + length])
                start += length + 1
                yield _result(head, body)
        finally:
            del received[:start]


def _result(head: dict[str, Any], body: bytes) -> Result:
    headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"])
    return Result(head["cursor"], head["call"], head["status"], headers, body)
