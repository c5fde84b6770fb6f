"""An environment server that only holds: `python held_environment.py --port 9000 --hold 4096 --rows 20000`.

The oldest rollout is answered when there are `--hold` of them, and all when the last of `--rows` has come. So
the number in flight is not hoped for from a delay: it is reached, and `GET /held` says what it was. What it
answers is one record of `--answer-bytes`, made once. A bare ASGI app below the layers by which a server of
ours answers later; `--plain` leaves those out, as a foreign server does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import deque
from typing import Any

import uvicorn
from starlette.types import Message, Receive, Scope, Send

from gymctl.servers.stack import serve
from gymctl.servers.stack.deferred import Deferred, Streams
from gymctl.servers.stack.liveness import Liveness


def record(size: int) -> bytes:
    """What a verified rollout looks like; most of it is the conversation."""
    text = "x" * max(0, size - 420)
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 310, "output_tokens": 95, "total_tokens": 405}
    value = {
        "responses_create_params": {"input": "the question"},
        "response": {"id": "resp_1", "output": [message], "usage": usage, "incomplete_details": None},
        "reward": 1.0,
        "answer": 42,
    }
    return json.dumps(value).encode()


class Held:
    def __init__(self, hold: int, rows: int, answer: bytes) -> None:
        self._hold = hold
        self._rows = rows
        self._answer = answer
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arrived = 0
        self._most = 0
        self._aggregated_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/run":
            await self._read(receive)
            await self._place()
            return await _send(send, self._answer)
        if scope["path"] == "/aggregate_metrics":
            self._aggregated_bytes = await self._read(receive)
            return await _send(send, b'{"agent_metrics":{},"key_metrics":{},"group_level_metrics":[]}')
        said = {"most": self._most, "arrived": self._arrived, "aggregated_bytes": self._aggregated_bytes}
        return await _send(send, json.dumps(said).encode())

    async def _read(self, receive: Receive) -> int:
        size, has_more = 0, True
        while has_more:
            message = await receive()
            size += len(message.get("body", b""))
            has_more = message.get("more_body", False)
        return size

    async def _place(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._arrived += 1
        self._most = max(self._most, len(self._waiting))
        while self._waiting and (len(self._waiting) >= self._hold or self._arrived >= self._rows):
            oldest = self._waiting.popleft()
            if not oldest.done():
                oldest.set_result(None)
        await place


async def _send(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hold", type=int, default=64)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--answer-bytes", type=int, default=2000)
    parser.add_argument("--plain", action="store_true")
    asked = parser.parse_args()
    serve.raise_descriptor_limit()
    app: Any = Held(asked.hold, asked.rows, record(asked.answer_bytes))
    since = None if asked.plain else time.monotonic()
    app = Liveness(Deferred(app, None if asked.plain else Streams()), "perf", "env", remembers_since=since)
    uvicorn.Server(serve.settings(app, lifespan="off", host="127.0.0.1", port=asked.port)).run()


if __name__ == "__main__":
    main()
