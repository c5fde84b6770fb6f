"""Signals that a program gets at a point of its own work, not of the clock.

    environ = strike(folder, "http.client.send", "DELETE /", 2, signal.SIGINT, signal.SIGINT)

The program (Python, started with `environ`) gets them before its second request that deletes something.
Events are those of `sys.addaudithook`; several signals come one right after the other.
"""

from __future__ import annotations

import os
from pathlib import Path

_HOOK = """\
import os, sys

wanted, needle, left, *numbers = os.environ["STRIKE"].split("|")
left = int(left)

def kill(numbers):
    try:
        os.kill(os.getpid(), int(numbers[0]))
    finally:
        if numbers[1:]:
            kill(numbers[1:])

def strike(event, args):
    global left
    if event == wanted and needle in repr(args):
        left -= 1
        if left == 0:
            kill(numbers)

sys.addaudithook(strike)
"""


def strike(folder: Path, event: str, needle: str, count: int, *numbers: int) -> dict[str, str]:
    """The environment of a program that is struck; `needle` is a part of what the event tells."""
    place = folder / "struck"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(_HOOK)
    told = "|".join([event, needle, str(count), *(str(int(number)) for number in numbers)])
    return {**os.environ, "PYTHONPATH": str(place), "STRIKE": told}
