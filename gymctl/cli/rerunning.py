"""The steps of `gymctl rerun`: the old command, the checks before anything starts, the comparison."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl.cli import rerun_words
from gymctl.cli.identity import REPEATED, Repeated
from gymctl.cli.output import Console
from gymctl.cli.surroundings import environments_of
from gymctl.cli.verify_run import own, run_at
from gymctl.config.model import Config
from gymctl.errors import GateError, GymctlError, IntegrityError, Interrupted
from gymctl.paths import RunPaths
from gymctl.rollouts import canonical, differences, passport, seal
from gymctl.rollouts.differences import Difference
from gymctl.rollouts.passport import Passport, Surroundings
from gymctl.rollouts.run import Run

_SHOWN = 12
_NOT_YET_KNOWN = ("machine", "image", "in force")
"""Kinds of differences that only servers that are up can show."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line of `gymctl rerun`."""

    run: str
    is_exact: bool
    output: Path | None
    set_files: tuple[str, ...]
    is_gate: bool
    as_json: bool
    is_quiet: bool


def rerun(asked: Asked) -> None:
    """Raises what the evaluation raises; IntegrityError before anything was started; GateError at the end."""
    paths = RunPaths(run_at(asked.run).resolve())
    told = passport.read(paths.passport)
    if told is None:
        raise IntegrityError("nothing says how this run was made", where=str(paths.passport))
    output = (asked.output or _beside(paths)).absolute()
    words = rerun_words.of(
        told,
        output,
        lock=paths.lock if paths.lock.is_file() else None,
        set_files=[_absolute(word) for word in asked.set_files],
    )
    console = Console(is_quiet=asked.is_quiet)
    _hold_to_seal(told, paths, console, is_exact=asked.is_exact)
    checks = Checks(told, paths, asked.is_exact, console)
    result, error = _evaluate(words, told, paths, checks, asked, console)
    if checks.made is None or isinstance(error, Interrupted):
        if error is not None:
            raise error
        return
    compared = canonical.compare(paths, checks.made)
    _show(compared, checks, asked, result)
    if error is not None:
        raise error
    if asked.is_gate and compared.equal < compared.records:
        raise GateError(f"gate failed: {compared}", where=str(checks.made.rollouts))


def _hold_to_seal(told: Passport, paths: RunPaths, console: Console, *, is_exact: bool) -> None:
    """What was edited since the run ended proves nothing, the passport above all."""
    found = own(told, paths.passport.read_bytes(), paths)
    texts = [f"{one.name}: {one.detail}" for one in found if one.status == "differs"]
    if texts and is_exact:
        raise IntegrityError(
            "files of the run are not what they were when it ended",
            where=str(paths.rollouts),
            details=texts,
            hint="restore them; without --exact it is run all the same",
        )
    for text in texts:
        console.insist(f"warning: not as the run left it: {text}")


@dataclass(slots=True)
class Checks:
    """What the evaluation asks on its way. `made`: where it left its rollouts."""

    told: Passport
    paths: RunPaths
    is_exact: bool
    console: Console
    made: RunPaths | None = None
    found: list[Difference] = field(default_factory=list)

    def before(self, run: Run, config: Config | None) -> None:
        """Nothing was started yet."""
        assert run.store.passport is not None
        self._settle([*self._rows(run), *self._differ(run.store.passport, config)])

    def _rows(self, run: Run) -> Iterator[Difference]:
        new = run.store.passport
        if new is None or new.rows == self.told.rows:
            return
        if self.paths.rows.is_file():
            changed = seal.between_rows(self.paths, seal.read_rows(run.store.side_rows))
            named = ", ".join(changed[:_SHOWN]) + (" …" if len(changed) > _SHOWN else "")
            if changed:
                yield Difference(f"rows {named}", f"sha256:{self.told.rows}", f"sha256:{new.rows}", "row")
                return
        yield Difference("rows", f"sha256:{self.told.rows}", f"sha256:{new.rows}", "row")

    def _differ(self, new: Passport, config: Config | None) -> Iterator[Difference]:
        """But for what is known only when the servers are up."""
        for one in differences.between(self.told, new):
            if one.kind not in _NOT_YET_KNOWN:
                yield one
        if self.told.model != new.model:
            yield Difference("model", self.told.model, new.model, "model")
        if config is not None and self.told.machine.runtime == "process":
            yield from self._environments(config)

    def _environments(self, config: Config) -> Iterator[Difference]:
        known = {name: seen.environment for name, seen in self.told.servers.items() if seen.environment}
        now = environments_of(config)
        for name, key in known.items():
            if now.get(name) != key:
                yield Difference(f"{name} environment", key, now.get(name), "environment")

    def up(self, seen: Surroundings) -> None:
        """The servers are up, and no rollout was sent."""
        new = passport.surrounded(self.told, seen)
        kinds = ("image", "in force")
        found = differences.between(self.told, new)
        self._settle([one for one in found if one.kind in kinds])

    def _settle(self, found: Sequence[Difference]) -> None:
        self.found += found
        if not found:
            return
        texts = [f"{one.kind} {one}" for one in found[:_SHOWN]]
        if len(found) > _SHOWN:
            texts.append(f"and {len(found) - _SHOWN} more")
        if self.is_exact:
            raise IntegrityError(
                "the run would not be made with the same",
                where=str(self.paths.rollouts),
                details=texts,
                hint="restore what differs; without --exact it is run all the same",
            )
        for text in texts:
            self.console.insist(f"warning: not as it was: {text}")

    def ended(self, made: RunPaths) -> None:
        self.made = made


def _evaluate(
    words: Sequence[str],
    told: Passport,
    paths: RunPaths,
    checks: Checks,
    asked: Asked,
    console: Console,
) -> tuple[Any, GymctlError | None]:
    """Run `gymctl eval` in this process. Returns what it printed as JSON, if asked, and its error."""
    from gymctl.cli.main import run_words

    origin = {"run": told.run, "output": str(paths.rollouts)}
    repeated = Repeated(("gymctl", *words), origin, checks.before, checks.up, checks.ended)
    extra = [*(["--json"] if asked.as_json else []), *(["--quiet"] if asked.is_quiet else [])]
    held = io.StringIO()
    token = REPEATED.set(repeated)
    try:
        shown = contextlib.redirect_stdout(held) if asked.as_json else contextlib.nullcontext()
        with _in_folder(told.folder, console), shown:
            run_words([*words, *extra])
    except GymctlError as error:
        return _parsed(held.getvalue()), error
    finally:
        REPEATED.reset(token)
    return _parsed(held.getvalue()), None


@contextlib.contextmanager
def _in_folder(folder: str, console: Console) -> Iterator[None]:
    """Where the command was typed, if that is there: names in it mean the same again."""
    if not folder or not Path(folder).is_dir():
        if folder:
            console.insist(f"note: {folder}, where the run was made, is not here; names are looked for here")
        yield
        return
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _parsed(text: str) -> Any:
    return json.loads(text) if text.strip() else None


def _show(compared: canonical.Comparison, checks: Checks, asked: Asked, result: Any) -> None:
    assert checks.made is not None
    console = Console()
    if asked.as_json:
        console.json(
            {
                "run": str(checks.paths.rollouts),
                "output": str(checks.made.rollouts),
                "is_exact": asked.is_exact,
                "records": compared.records,
                "equal": compared.equal,
                "differs": [{"rollout": name, "where": where} for name, where in compared.differs],
                "not_as_it_was": [
                    {"kind": one.kind, "key": one.key, "a": one.old, "b": one.new} for one in checks.found
                ],
                "evaluation": result,
            }
        )
        return
    console.data(f"\n repeats     {checks.paths.rollouts}\n records     {compared}")
    for name, where in compared.differs:
        console.data(f"   {name:<9} {where}")
    hidden = compared.records - compared.equal - len(compared.differs)
    if hidden > 0:
        console.data(f"   and {hidden:,} more")


def _beside(paths: RunPaths) -> Path:
    for number in range(1, 10_000):
        suffix = "" if number == 1 else f"-{number}"
        found = RunPaths(paths.rollouts.with_name(f"{paths.rollouts.stem}_rerun{suffix}.jsonl"))
        if not found.rollouts.exists() and not found.folder.exists():
            return found.rollouts
    raise AssertionError("names do not run out")


def _absolute(set_file: str) -> str:
    key, _, file = set_file.partition("=")
    return f"{key}={Path(file).absolute()}"
