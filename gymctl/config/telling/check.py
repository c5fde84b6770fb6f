"""Everything that can be said about a configuration without starting it: errors, warnings, sibling conflicts.

A conflict: two files set one value differently, neither includes the other, and nothing above them (a file
that includes both, env.yaml, an override) decides. The later one wins, which is what the order of names on a
command line happens to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymctl.config.checks import evaluation
from gymctl.config.load import examine
from gymctl.config.model import Config, Write
from gymctl.config.problems import Problems
from gymctl.config.sources import Selection
from gymctl.config.telling import notices
from gymctl.config.telling.explain import masked, secrets_said
from gymctl.config.tree.masking import redact
from gymctl.config.tree.origins import MISSING
from gymctl.errors import ConfigError, GymctlError


@dataclass(frozen=True)
class Conflict:
    """One value that siblings set differently; `writers` in rising order, the winner last, masked."""

    key: str
    writers: tuple[Write, ...]

    def to_json(self) -> dict[str, Any]:
        said = [{"source": str(write.origin), "said": write.said} for write in self.writers]
        return {"key": self.key, "writers": said}


@dataclass(frozen=True)
class Report:
    """What a check found. `config` is None when there are errors."""

    errors: tuple[GymctlError, ...]
    warnings: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    config: Config | None


def check(
    selection: Selection, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> Report:
    """Load, and report instead of raising. UsageErrors (an unknown name on the command line) are raised."""
    problems = Problems()
    try:
        config = examine(selection, problems, cwd=cwd, environ=environ)
    except ConfigError:
        return Report(tuple(problems.errors), tuple(problems.warnings), (), None)
    settled: tuple[str, ...] = ()
    if not problems.errors:
        try:
            settled = evaluation.read(config.document, config.origins).warnings
        except ConfigError as error:  # what a flag of an evaluation may still set right
            problems.errors.append(error)
    doubtful = (*config.warnings, *settled, *notices.of(config))
    warnings = tuple(dict.fromkeys(redact(warning, config.secrets) for warning in doubtful))
    errors = (*problems.errors, *(error for _, error in config.unstartable))
    return Report(errors, warnings, tuple(conflicts(config)), None if errors else config)


def conflicts(config: Config) -> Iterator[Conflict]:
    """Every leaf whose winner is a file that overruled another one by its place alone."""
    secrets = secrets_said(config)
    for key, writes in config.writers.items():
        if key.startswith("config_paths["):
            continue
        winner = writes[-1]
        if winner.kind != "value" or winner.origin.source not in config.includes:
            continue
        overruled = [write for write in writes[:-1] if _is_overruled(write, winner, config)]
        if overruled:
            told = tuple(masked(write, secrets) for write in (*overruled, winner))
            yield Conflict(key, told)


def _is_overruled(write: Write, winner: Write, config: Config) -> bool:
    loser = write.origin.source
    return (
        write.kind == "value"
        and loser != winner.origin.source
        and loser in config.includes
        and loser not in config.includes[winner.origin.source]
        and write.said != winner.said
        and write.said != MISSING
    )
