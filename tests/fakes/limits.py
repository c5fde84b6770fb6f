"""Time limits that strike when a test says so: neither before what they cut has begun, nor long after."""

from __future__ import annotations

import asyncio

import pytest


class Limits:
    """The time limits of this length that are set from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        original = asyncio.timeout
        self._set: list[asyncio.Timeout] = []

        def noted(delay: float | None) -> asyncio.Timeout:
            made = original(delay)
            if delay == seconds:
                self._set.append(made)
            return made

        monkeypatch.setattr(asyncio, "timeout", noted)

    def strike(self) -> None:
        """All of them are over."""
        assert self._set
        for limit in self._set:
            limit.reschedule(0)
