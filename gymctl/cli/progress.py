"""What is seen while rollouts run: a live block on a terminal, lines in a pipe, JSON objects, or nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from gymctl.cli.output import Console, plain
from gymctl.cli.table import duration
from gymctl.metrics.outcomes import FAILURE_CLASSES
from gymctl.metrics.tally import Tally, Watch
from gymctl.rollouts.waiting import Waiting

REDRAW_SECONDS = 0.25
LINE_SECONDS = 10.0
OBJECT_SECONDS = 1.0


@asynccontextmanager
async def following(
    tally: Tally,
    console: Console,
    mode: str = "auto",
    watch: Watch | None = None,
    waiting: Waiting | None = None,
) -> AsyncIterator[None]:
    """Show how a run goes while the block runs; the display never fails the run and ends with it.

    mode: one of `eval_flags.PROGRESS`; `text` is what `watch` makes of the rollouts. waiting: finds out whom
    the slowest rollouts wait for, in the modes that name them.
    """
    if mode == "text":
        tally.watch = watch
        try:
            yield
        finally:
            tally.watch = None
        return
    if mode == "none" or (console.is_quiet and mode != "json"):
        yield
        return
    if mode == "auto":
        mode = "rich" if console.has_motion else "plain"
    start, kept = asyncio.get_running_loop().time(), tally.finished
    show = {"rich": _live, "plain": _lines, "json": _objects}[mode]
    tasks = [asyncio.create_task(show(tally, console))]
    if waiting is not None and mode != "plain":
        tasks.append(asyncio.create_task(waiting.follow(tally)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, OSError):  # a terminal that has gone
                await task
        if mode == "json":
            _tell(tally, console, start, kept, is_last=True)


async def _live(tally: Tally, console: Console) -> None:
    from rich.console import Console as RichConsole
    from rich.live import Live
    from rich.text import Text

    start, kept = asyncio.get_running_loop().time(), tally.finished

    def above(text: str) -> None:
        rich.print(Text(text), soft_wrap=True)

    with console.drawing(above) as stream:
        rich = RichConsole(file=stream, force_terminal=True, highlight=False)
        with Live(console=rich, auto_refresh=False, transient=True) as live:
            while True:
                now = asyncio.get_running_loop().time()
                text = plain("\n".join(block(tally, now, now - start, rich.width, kept)))
                # A Text, not a string: rollout ids come from files and must not be read as markup.
                live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
                await asyncio.sleep(REDRAW_SECONDS)


async def _lines(tally: Tally, console: Console) -> None:
    """A line every ten seconds, or sooner at each further tenth of the rollouts."""
    loop = asyncio.get_running_loop()
    start = last = loop.time()
    tenth = 0
    while True:
        await asyncio.sleep(REDRAW_SECONDS)
        now = loop.time()
        reached = tally.finished * 10 // max(tally.planned, 1)
        if reached > tenth or now - last >= LINE_SECONDS:
            console.say(line(tally, now - start))
            tenth, last = reached, now


async def _objects(tally: Tally, console: Console) -> None:
    """An object a second while something changes, else every ten seconds."""
    loop = asyncio.get_running_loop()
    start = last = loop.time()
    before, kept = -1, tally.finished
    while True:
        now = loop.time()
        if tally.finished != before or now - last >= LINE_SECONDS:
            _tell(tally, console, start, kept)
            before, last = tally.finished, now
        await asyncio.sleep(OBJECT_SECONDS)


def _tell(tally: Tally, console: Console, start: float, kept: int, *, is_last: bool = False) -> None:
    now = asyncio.get_running_loop().time()
    console.insist(json.dumps(snapshot(tally, now, now - start, kept, is_last=is_last), ensure_ascii=True))


def snapshot(
    tally: Tally, now: float, elapsed: float, kept: int = 0, *, is_last: bool = False
) -> dict[str, Any]:
    """One object of `--progress json` (docs/evaluation.md). kept: what an earlier run finished."""
    so_far = tally.reward_so_far
    return {
        "event": "progress",
        "is_last": is_last,
        "seconds": round(elapsed, 3),
        "planned": tally.planned,
        "finished": tally.finished,
        "scored": tally.scored,
        "failed": {name: tally.failed[name] for name in FAILURE_CLASSES},
        "retried": tally.retried,
        "running": len(tally.running),
        "waiting": tally.planned - tally.finished - len(tally.running),
        "reward": None if so_far is None else so_far[0],
        "half_width": None if so_far is None else so_far[1],
        "tokens": {"input": tally.input_tokens, "output": tally.output_tokens},
        "rollouts_per_minute": round((tally.finished - kept) / elapsed * 60, 2) if elapsed > 0 else 0.0,
        "slowest": [
            {
                "rollout": name,
                "server": tally.asked.get(name),
                "waits_for": tally.waits.get(name),
                "seconds": round(now - since, 3),
            }
            for name, since in tally.slowest()
        ],
    }


def line(tally: Tally, elapsed: float) -> str:
    """One line for a log."""
    share = tally.finished / max(tally.planned, 1)
    parts = [f"{tally.finished:,} of {tally.planned:,} ({share:.0%})", f"reward {_reward(tally)}"]
    if tally.failed:
        parts.append(f"failed {_failed(tally)}")
    parts.append(f"running {len(tally.running)}")
    parts.append(duration(elapsed))
    return "  " + " · ".join(parts)


def block(tally: Tally, now: float, elapsed: float, width: int = 80, kept: int = 0) -> list[str]:
    """The live display: bar, counts, reward so far, slowest rollouts, failures by class."""
    share = tally.finished / max(tally.planned, 1)
    made, due = tally.finished - kept, tally.planned - tally.finished
    left = f"   {duration(elapsed * due / made)} left" if made > 0 and due > 0 else ""
    size = max(10, min(40, width - 50))
    bar = "━" * round(share * size) + "╌" * (size - round(share * size))
    waiting = tally.planned - tally.finished - len(tally.running)
    lines = [
        f" rollouts  {bar}  {tally.finished:,} of {tally.planned:,}  {share:.0%}{left}",
        f" scored {tally.scored:,} · failed {tally.failed.total():,} · running {len(tally.running):,}"
        f" · waiting {waiting:,}",
        f" reward    {_reward(tally)} so far"
        f"    tokens {tally.input_tokens:,} in · {tally.output_tokens:,} out",
    ]
    slowest = [
        " ".join(filter(None, (name, tally.waits.get(name, tally.asked.get(name)), duration(now - since))))
        for name, since in tally.slowest()
    ]
    if slowest:
        lines.append(" slowest   " + " · ".join(slowest))
    if tally.failed:
        lines.append(f" failed    {_failed(tally)}")
    return lines


def _reward(tally: Tally) -> str:
    so_far = tally.reward_so_far
    if so_far is None:
        return "–"
    centre, half = so_far
    return f"{centre:.3f}" if half is None else f"{centre:.3f} ± {half:.3f}"


def _failed(tally: Tally) -> str:
    return ", ".join(f"{name} {tally.failed[name]:,}" for name in FAILURE_CLASSES if tally.failed[name])
