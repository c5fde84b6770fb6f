"""A server that is waited for is named after a while, also where no terminal shows what goes on."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gymctl.runtime import ready


class Heard:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def step(self, name: str, text: str) -> None: ...
    def progress(self, text: str) -> None: ...
    def note(self, text: str) -> None:
        self.notes.append(text)


def stack() -> Any:
    table = {name: SimpleNamespace(url=f"http://127.0.0.1:{port}") for name, port in (("a", 1), ("b", 2))}
    return SimpleNamespace(state=SimpleNamespace(ray={}), head_url="http://127.0.0.1:3", table=table)


async def talked(seconds_waited: float) -> list[str]:
    progress = ready.Progress(began=time.monotonic() - seconds_waited)
    progress.answered["a"] = 0.1
    heard = Heard()
    talking = asyncio.create_task(ready._talk(["a", "b"], cast(Any, stack()), progress, heard))
    await asyncio.sleep(0.05)
    talking.cancel()
    return heard.notes


async def test_what_does_not_answer_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "sleep", _briefly(asyncio.sleep))
    assert await talked(ready.LONG_SECONDS + 1) == [
        "after 60 s: b: running, no answer at http://127.0.0.1:2; `gymctl logs b` tells more"
    ]


async def test_before_that_nothing_is_said() -> None:
    assert await talked(ready.LONG_SECONDS - 10) == []


def _briefly(sleep: Any) -> Any:
    """`_talk` looks every half second; here every hundredth."""
    return lambda seconds: sleep(min(seconds, 0.01) if seconds == 0.5 else seconds)
