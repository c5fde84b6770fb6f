"""A passport as lines of a table: what a reader of the results asks first, on top."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gymctl.cli.output import table_lines
from gymctl.cli.short_paths import short_paths
from gymctl.counts import counted
from gymctl.rollouts.differences import short
from gymctl.rollouts.passport import Passport, ServerSeen

_MIB = 1024**2
_DIGITS = 12
NOT_RETURNED = "not returned"
_PARAMS = "responses_create_params."


def rows(told: Passport) -> Iterator[tuple[str, str]]:
    """Label and text; an empty label goes on with the one above."""
    yield "run", f"{told.title or 'run'}   {told.run}"
    yield "made", f"{told.created}   gymctl {told.gymctl}, Python {told.python}"
    yield "command", shlex.join(told.command)
    if told.repeats_run:
        yield "repeats", f"{told.repeats_run.get('output')} ({told.repeats_run.get('run')})"
    if told.scores_run:
        yield "scores", f"{told.scores_run.get('output')} ({told.scores_run.get('run', 'no passport')})"
    for entry in told.continued:
        spite = f", in spite of {counted(len(entry.in_spite_of), 'difference')}" if entry.in_spite_of else ""
        yield "gone on", f"{entry.at}   gymctl {entry.gymctl}{spite}"
    rollouts = counted(told.rollouts, "rollout")
    yield "rows", f"{rollouts}, {told.repeats} of each task   {short(f'sha256:{told.rows}')}"
    shown = short_paths(told.files, Path.cwd())
    yield from _labelled("file", [f"{shown[name]}   {short(digest)}" for name, digest in told.files.items()])
    yield "config", f"{counted(len(told.config), 'value')}   {short(f'sha256:{told.config_digest}')}"
    if told.benchmark:
        yield "benchmark", f"{told.benchmark.get('reference')}   {short(told.benchmark.get('digest'))}"
    yield "model", told.model or "no name"
    yield "returned", _counted(told.models_returned)
    yield "fingerprint", _counted(told.fingerprints_returned)
    yield "sampling", _sampling(told)
    if told.limits:
        yield "limits", ", ".join(f"{flag} {value}" for flag, value in told.limits.items())
    if told.failures_count:
        yield "failures", short(told.failures_count)
    if told.servers:
        yield from _labelled("servers", _servers(told.servers))
    if not told.servers and told.images:
        yield from _labelled("image", [f"{name}   {image}" for name, image in told.images.items()])
    yield "machine", _machine(told)
    yield "sealed", "not finished, or by an older gymctl" if told.seal is None else told.seal.at


def _labelled(label: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        yield label, text
        label = ""


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in found.items()) or NOT_RETURNED


def _sampling(told: Passport) -> str:
    asked: dict[str, Any] = {key: value for key, value in told.settings.items() if key.startswith(_PARAMS)}
    if told.settings.get("num_repeats_add_seed"):
        asked["seed"] = "each rollout's index"
    texts = [f"{key.removeprefix(_PARAMS)} {short(value)}" for key, value in asked.items()]
    texts += [
        f"{key} {'/'.join(map(short, values))}"
        for key, values in told.sampling.items()
        if f"{_PARAMS}{key}" not in asked
    ]
    return ", ".join(texts) or "the model's own defaults"


def _servers(servers: Mapping[str, ServerSeen]) -> list[str]:
    """One line each below a header; the tag is left out where none was used."""
    seen = list(servers.values())
    is_tagged = any(_tag(one) for one in seen)
    header = ("NAME", "RUNS", *(("TAG",) if is_tagged else ()), "PROFILE", "LIMITS")
    rows = [
        (name, _runs(one), *((_tag(one),) if is_tagged else ()), one.profile or "", limits(one))
        for name, one in servers.items()
    ]
    return table_lines(header, rows)


def _runs(seen: ServerSeen) -> str:
    """The first digits of an image's id, or of a local environment's name."""
    if seen.environment:
        return f"environment {seen.environment[:_DIGITS]}"
    return (seen.id or "").removeprefix("sha256:")[:_DIGITS]


def _tag(seen: ServerSeen) -> str:
    """Locked servers were started by the id, not by a tag."""
    image = seen.image or ""
    return "" if image.startswith("sha256:") or "@" in image else image


def limits(seen: ServerSeen) -> str:
    """`2048 MiB, 1.5 CPUs, 1024 pids (cgroup v2)`."""
    if seen.cgroup is None:
        return "limits not known"
    memory = "all memory" if seen.memory_bytes is None else f"{seen.memory_bytes // _MIB:,} MiB"
    cpus = "all CPUs" if seen.cpus is None else f"{seen.cpus:g} CPUs"
    pids = "any pids" if seen.pids is None else f"{seen.pids:,} pids"
    return f"{memory}, {cpus}, {pids} (cgroup {seen.cgroup})"


def _machine(told: Passport) -> str:
    was = told.machine
    if not was.kernel:
        return "not recorded"
    clock = {True: "synchronized", False: "not synchronized", None: "not known"}[was.is_clock_synchronized]
    engine = f"Docker {was.engine}, Compose {was.compose}" if was.engine else was.runtime or "elsewhere"
    return f"{was.kernel} {was.architecture}, {was.cpus} CPUs; {engine}; clock UTC{was.utc_offset} {clock}"
