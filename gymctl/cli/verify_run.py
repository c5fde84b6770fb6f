"""`gymctl verify RUN`: the run's own files and its passport, then what it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gymctl.cli import runs
from gymctl.cli.output import Console
from gymctl.cli.short_paths import short_paths
from gymctl.cli.verify_inputs import made_from
from gymctl.counts import counted
from gymctl.errors import IntegrityError
from gymctl.paths import RunPaths
from gymctl.rollouts import journal, passport, seal
from gymctl.rollouts.altered import altered
from gymctl.rollouts.differences import short
from gymctl.rollouts.findings import Finding
from gymctl.rollouts.lines import numbered
from gymctl.rollouts.passport import Passport, RowsDigest

_NAMED = 5
_NAMED_BY_PATH = ("file ", "prompt ")


def verify(what: str, *, is_strict: bool, as_json: bool) -> None:
    """Print the findings. Raises UsageError (no run) and IntegrityError (something differs)."""
    paths = RunPaths(run_at(what))
    found = findings(paths)
    console = Console()
    if as_json:
        document = {
            "run": str(paths.rollouts),
            "findings": [one.to_json() for one in found],
            "differs": [one.name for one in found if one.status == "differs"],
        }
        console.json(document)
    else:
        console.table(("INGREDIENT", "IS", ""), rows(found))
    wrong = [one for one in found if one.fails(is_strict=is_strict)]
    if wrong:
        raise IntegrityError(
            f"{len(wrong)} of {counted(len(found), 'ingredient')} of the run "
            f"{'is' if len(wrong) == 1 else 'are'} not what its passport says",
            where=str(paths.rollouts),
            details=[f"{one.name}: {one.status}{f', {one.detail}' if one.detail else ''}" for one in wrong],
        )


def rows(found: Sequence[Finding]) -> Iterator[tuple[str, str, str]]:
    """The findings as a table shows them, with short paths."""
    named = {one.name: one.name.partition(" ")[2] for one in found if one.name.startswith(_NAMED_BY_PATH)}
    shown = short_paths(named.values(), Path.cwd())
    for one in found:
        path = named.get(one.name)
        name = one.name if path is None else f"{one.name.removesuffix(path)}{shown[path]}"
        yield name, one.status, one.detail


def run_at(what: str) -> Path:
    """The rollouts file of a run, also named by its folder or its passport."""
    folder = Path(what).parent if Path(what).name == "passport.json" else Path(what)
    if (folder / "passport.json").is_file():
        beside = [folder.with_name(f"{folder.name}{suffix}") for suffix in (".jsonl", ".json")]
        return next((path for path in beside if path.is_file()), beside[0])
    return runs.resolve(what)


def findings(paths: RunPaths) -> list[Finding]:
    """All ingredients, the passport first. Raises IntegrityError: there is no passport."""
    try:
        raw = paths.passport.read_bytes()
    except FileNotFoundError:
        raise IntegrityError(
            "nothing says what this run was made with: it has no passport",
            where=str(paths.passport),
            hint="only gymctl writes one; runs of other tools cannot be verified",
        ) from None
    told = passport.read(paths.passport)
    if told is None:
        return [Finding("passport", "differs", "it cannot be read, so nothing else can be checked")]
    return [*own(told, raw, paths), *made_from(told, paths.lock)]


def own(told: Passport, raw: bytes, paths: RunPaths) -> Iterator[Finding]:
    """The passport, of which `raw` are the bytes, and the files that the run wrote."""
    yield _passport(told, raw)
    yield _seal(told, paths)
    yield from _files(told, paths)
    yield _rows(told, paths)


def _passport(told: Passport, raw: bytes) -> Finding:
    if told.schema_version < passport.SCHEMA:
        return Finding("passport", "not recorded", f"written by gymctl {told.gymctl}, without a seal")
    if told.seal is None:
        is_whole = passport.text(told.model_dump()) == raw
        return Finding("passport", "ok" if is_whole else "differs", "" if is_whole else "it was edited")
    return Finding("passport", "ok") if seal.is_as_sealed(raw) else Finding("passport", "differs", "edited")


def _seal(told: Passport, paths: RunPaths) -> Finding:
    if told.seal is not None:
        owed = f", {counted(told.seal.owed, 'rollout')} still to be made" if told.seal.owed else ""
        return Finding("seal", "ok", f"of {told.seal.at}{owed}")
    if told.schema_version < passport.SCHEMA:
        return Finding("seal", "not recorded", "passports had none then")
    end = journal.last_end(paths.journal)
    why = "it runs, or it was killed" if end in (None, "none") else f"it ended as {end.reason}"
    return Finding("seal", "not recorded", f"not finished: {why}; what stood when it began is checked")


def _files(told: Passport, paths: RunPaths) -> Iterable[Finding]:
    """The files that the run wrote."""
    expected = told.documents if told.seal is None else told.seal.files
    for name, path in seal.files_of(paths).items():
        if name not in expected:
            if name == "rollouts":
                yield _by_journal(paths)
            elif path.is_file() and told.seal is not None:
                yield Finding(name, "differs", "it was not there when the run ended")
            elif path.is_file() or name in (seal.INPUTS, seal.ROWS, seal.CONFIG):
                yield Finding(name, "not recorded")
        elif not path.is_file():
            yield Finding(name, "differs", f"{path.name} is missing")
        else:
            yield Finding.of(name, expected[name], seal.sha256(path))


def _by_journal(paths: RunPaths) -> Finding:
    """Without a seal the journal has a checksum of each line that was written."""
    if not paths.rollouts.is_file():
        return Finding("rollouts", "differs", f"{paths.rollouts.name} is missing")
    if not paths.journal.is_file():
        return Finding("rollouts", "not recorded")
    changed = altered(paths)
    return (
        Finding("rollouts", "differs", _named(changed)) if changed else Finding("rollouts", "ok", "by line")
    )


def _rows(told: Passport, paths: RunPaths) -> Finding:
    """The rows as the inputs file has them, each by its own digest."""
    if not paths.inputs.is_file():
        return Finding("rows", "differs", f"{paths.inputs.name} is missing")
    with paths.inputs.open("rb") as file:
        digest = RowsDigest.of(line.text for line in numbered(file))
    if not paths.rows.is_file():
        return Finding.of("rows", f"sha256:{told.rows}", f"sha256:{digest}")
    changed = seal.changed_rows(paths)
    if changed:
        return Finding("rows", "differs", _named(changed))
    return Finding.of("rows", f"sha256:{told.rows}", f"sha256:{digest}", counted(digest.count, "row"))


def _named(rollouts: Sequence[str]) -> str:
    more = f" and {len(rollouts) - _NAMED:,} more" if len(rollouts) > _NAMED else ""
    return f"{', '.join(short(name) for name in rollouts[:_NAMED])}{more}"
