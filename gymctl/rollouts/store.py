"""The files of a run: what is there is kept, new lines are appended whole, nothing is left half written.

prepare()   a new run, before its first side effect: inputs written to a side file
go_on()     or the run that is there already
begin()     just before the first request: a new run becomes the owner of its files
sent()      an attempt goes out: journaled first
append()    one record, one line, out of the process when it returns; cancellation cannot cut it
close()     everything on disk

After `kill -9` nothing that was appended is missing. A power failure takes at most what was written in the
last `SYNC_SECONDS`; those rollouts are made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import ATTEMPT_INDEX, FAILURE_CLASS, JOIN_KEY, NO_PERSIST, Row, rollout_key
from gymctl.paths import RunPaths
from gymctl.rollouts import altered, inputs, journal, lines, passport, place, seal, surroundings
from gymctl.rollouts.attempts import AttemptPolicy
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.expand import rollout_id
from gymctl.rollouts.history import History
from gymctl.rollouts.lines import LineFile
from gymctl.rollouts.passport import Identity, Passport, Surroundings
from gymctl.rollouts.returned import Returned

SYNC_SECONDS = 5.0
_LARGE_LINE = 1_000_000
"""Bytes of a response from which on it is encoded and written in a thread, so that others are not held up."""


class RunStore:
    """Writes one run; the methods are called in the order above."""

    def __init__(
        self, paths: RunPaths, policy: AttemptPolicy | None = None, *, is_longest_first: bool = False
    ) -> None:
        self.paths = paths
        self.policy = policy or AttemptPolicy()
        self.history = History()
        self.owed = 0
        """Rollouts that have neither a score nor a failure that is the last one."""
        self.passport: Passport | None = None
        self.returned = Returned()
        """What the models called themselves, over all sessions."""
        self._documents: dict[str, str] = {}
        self._is_longest_first = is_longest_first
        self.is_new = True
        """Nothing that was there is gone on with."""
        self._rollouts: LineFile | None = None
        self._failures: LineFile | None = None
        self._journal: journal.Journal | None = None
        self._lock: place.OutputLock | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._next_sync = 0.0

    @property
    def _side_inputs(self) -> Path:
        return self.paths.inputs.with_name(f".{self.paths.inputs.name}.{os.getpid()}")

    @property
    def side_rows(self) -> Path:
        """The digests of a new run's rows, until it has begun."""
        return self.paths.inputs.with_name(f".{self.paths.rollouts.stem}.{seal.ROWS}.{os.getpid()}")

    def take(self) -> None:
        """Check that the run can be written and keep others out. Raises PrerequisiteError naming the path.

        Nothing of an earlier run is touched but what one that was killed has left aside. Idempotent.
        """
        if self._lock is None:
            self._lock = place.take(self.paths)
            for side in (self._side_inputs, self.side_rows):
                place.remove_left(side)

    def prepare(self, rows: Iterable[Row], identity: Identity | None = None, repeats: int = 1) -> int:
        """Make ready for a new run and write its inputs aside; returns their number.

        Raises PrerequisiteError naming the path. Nothing of an earlier run is touched.
        """
        self.take()
        sampling: dict[str, list[Any]] = {}
        try:
            digest = inputs.write(rows, self._side_inputs, self.side_rows, sampling)
        except OSError as error:
            self.discard()
            raise place.refused(self.paths, error) from error
        except BaseException:
            self.discard()
            raise
        identity = identity or Identity()
        self.passport = passport.issue(identity, digest, repeats, sampling)
        self.note_config(identity)
        self.owed = digest.count
        return digest.count

    def go_on(self, found: Passport, history: History, owed: int) -> None:
        """Go on with the run that is there; its files have been mended and read."""
        self.passport = found
        self.history = history
        self.is_new = False
        self.owed = owed
        self.returned = history.returned

    def note_config(self, identity: Identity) -> None:
        """Keep the text of the configuration in the run's folder; written by `begin`."""
        if identity.config_text:
            self._documents[seal.CONFIG] = identity.config_text

    def note_surroundings(self, seen: Surroundings) -> Sequence[str]:
        """What the servers run in; written down by `begin`. A run that is gone on with keeps the lock of its
        beginning: how these images differ is noted with the session, and returned as sentences."""
        assert self.passport is not None, "prepare() or go_on() comes first"
        first = self.paths.lock.read_bytes() if not self.is_new and self.paths.lock.is_file() else None
        self.passport, documents, others = surroundings.noted(self.passport, seen, first)
        self._documents.update(documents)
        return others

    def begin(self) -> tuple[Path, ...]:
        """Make the run the owner of its files; call it when nothing else can refuse the run any more.

        Returns the files of an earlier run that were replaced.
        """
        assert self.passport is not None, "prepare() or go_on() comes first"
        try:
            replaced = self._replace_old() if self.is_new else ()
            if self.owed and not self.is_new:
                for path in (self.paths.aggregate, self.paths.health, self.paths.verdicts):
                    path.unlink(missing_ok=True)  # of fewer rollouts than there will be
            self._write_documents()
            passport.write(self.paths.passport, self.passport)
            if self.is_new:
                self._side_inputs.replace(self.paths.inputs)
            past = journal.read(self.paths.journal)
            self._journal = journal.Journal(self.paths.journal, self.passport.run, past)
            self._journal.begin(self.owed)
            # Last of all: a run is one from here on, and what it needs to be gone on with is there.
            self._rollouts = LineFile(self.paths.rollouts)
            lines.sync_folder(self.paths.rollouts.parent)
        except OSError as error:
            raise place.lost_room(self.paths, error) from error
        self._next_sync = time.monotonic() + SYNC_SECONDS
        return replaced

    def _write_documents(self) -> None:
        """What stands from the beginning, and its digests in the passport, which has no seal from here on."""
        assert self.passport is not None
        self.paths.folder.mkdir(parents=True, exist_ok=True)
        for name, text in self._documents.items():
            lines.replace(self.paths.folder / name, text.encode("utf-8", "surrogatepass"))
        if self.is_new:
            self.side_rows.replace(self.paths.rows)
        stand = seal.digests(self.paths, [name for name in seal.BEGUN if name != seal.INPUTS])
        inputs = self._side_inputs if self.is_new else self.paths.inputs
        self.passport = self.passport.model_copy(
            update={
                "schema_version": passport.SCHEMA,
                "documents": {seal.INPUTS: seal.sha256(inputs), **stand},
                "seal": None,
            }
        )

    @property
    def _lacks_only_its_seal(self) -> bool:
        """An earlier session made everything and was killed at its very end."""
        told = self.passport
        is_ours = told is not None and told.seal is None and told.schema_version == passport.SCHEMA
        is_whole = is_ours and not self.is_new and not self.owed and self.paths.passport.exists()
        return is_whole and not altered.altered(self.paths)

    def seal(self) -> None:
        """Say in the passport what all files of the run are; when nothing is written to them any more.

        Reads them once. RunError: the disk is full.
        """
        if self.passport is None or (self._journal is None and not self._lacks_only_its_seal):
            return  # nothing was begun, so an older seal holds
        self.passport = self.passport.model_copy(update=self.returned.fields())
        try:
            self.passport = seal.sealed(self.passport, self.paths, self.owed)
            passport.write(self.paths.passport, self.passport)
        except OSError as error:
            raise place.lost_room(self.paths, error) from error

    def inputs(self) -> Iterator[tuple[bytes, Row]]:
        """The rows that are owed as they will be sent, read back one by one. A row that failed before has
        the number of its failures as `_ng_attempt_index`."""
        order = self.history.seconds if self._is_longest_first else {}
        yield from inputs.owed(self.paths.inputs, self.history, order)

    def sent(self, row: Row, rollout: str, server: str) -> None:
        """An attempt is about to be sent. RunError: the disk is full."""
        try:
            self._open_journal.sent(row, rollout, server)
        except OSError as error:
            raise place.lost_room(self.paths, error) from error

    def given_up(self, rollout: str) -> None:
        """The server has cancelled the attempt of a session that was killed: it is sent under another key."""
        try:
            self._open_journal.ended(rollout, None, None)
        except OSError as error:
            raise place.lost_room(self.paths, error) from error

    def end(self, end: journal.End) -> None:
        """Nothing more is sent in this session, and why. A disk that takes no more is told of elsewhere."""
        with contextlib.suppress(OSError):
            self._open_journal.end(end)

    @property
    def has_in_flight(self) -> bool:
        """Earlier sessions left attempts that were sent and have no end; after `begin`."""
        return self._open_journal.has_in_flight

    def give_up_in_flight(self, since: float) -> None:
        """Make attempts anew that were in flight at `since`. RunError: the disk is full."""
        try:
            self._open_journal.give_up(since)
        except OSError as error:
            raise place.lost_room(self.paths, error) from error

    def key(self, rollout: str) -> str:
        """The idempotency key of an attempt: the same one whenever the same attempt is sent again."""
        return self._open_journal.key(rollout)

    async def append(self, record: Row, size: int = 0, *, is_plain: bool = False) -> None:
        """Write one record to the file it belongs to; done completely, or RunError and the file as before.

        `size` is about how many bytes the record has, `is_plain` as of encoding.dumps. A cancellation arrives
        after the write.
        """
        if size < _LARGE_LINE:
            self._append_now(record, is_plain)
        else:
            writing = asyncio.ensure_future(asyncio.to_thread(self._append_now, record, is_plain))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait([writing])
                writing.result()
                self._note(record)
                raise
        self._note(record)
        self._sync_now_and_then()

    def _append_now(self, record: Row, is_plain: bool) -> None:
        rollout = str(record.get(JOIN_KEY) or rollout_id(record))
        try:
            if record.get(NO_PERSIST):
                self._open_journal.ended(rollout, None, None)
                return
            is_failure = record.get(FAILURE_CLASS) is not None
            line = dumps(record, is_plain=is_plain)
            self._file(is_failure).write(line)
            self._open_journal.ended(rollout, "failures" if is_failure else "rollouts", zlib.crc32(line))
        except OSError as error:
            raise place.lost_room(self.paths, error) from error

    def _note(self, record: Row) -> None:
        if record.get(NO_PERSIST):
            return
        self.history.last.pop(rollout_key(record), None)
        self.returned.see(record)
        failures = int(record.get(ATTEMPT_INDEX) or 0) + 1
        if record.get(FAILURE_CLASS) is None or self.policy.is_over(failures, record):
            self.owed -= 1

    def _sync_now_and_then(self) -> None:
        """In a thread: the disk may take its time, the rollouts do not wait for it."""
        if self._syncing is not None:
            if not self._syncing.done():
                return
            done, self._syncing = self._syncing, None
            error = done.exception()
            if isinstance(error, OSError):
                raise place.lost_room(self.paths, error) from error
        now = time.monotonic()
        if now >= self._next_sync:
            self._next_sync = now + SYNC_SECONDS
            files = [file for file in (self._rollouts, self._failures, self._journal) if file is not None]
            self._syncing = asyncio.ensure_future(asyncio.to_thread(_sync, files))

    def write_aggregate(self, document: bytes) -> None:
        """Whole or not at all."""
        try:
            lines.replace(self.paths.aggregate, document)
        except OSError as error:
            raise place.lost_room(self.paths, error) from error

    def records(self) -> Iterator[Row]:
        """The successes that are on disk."""
        if self.paths.rollouts.exists():
            with self.paths.rollouts.open("rb") as file:
                for line in file:
                    yield loads(line)

    def discard(self) -> None:
        """Forget inputs that were written aside for a run that never began, and let others have the place."""
        with contextlib.suppress(OSError):  # a file system that takes nothing may refuse even this
            self._side_inputs.unlink(missing_ok=True)
            self.side_rows.unlink(missing_ok=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def close(self) -> None:
        """Idempotent. RunError when the disk refuses at the last moment what it took before."""
        files = (self._rollouts, self._failures, self._journal)
        self._rollouts = self._failures = self._journal = None
        try:
            for file in files:
                if file is not None:
                    file.close()
        except OSError as error:
            raise place.lost_room(self.paths, error) from error
        finally:
            self.discard()

    @property
    def _open_journal(self) -> journal.Journal:
        if self._journal is None:
            raise RuntimeError("begin() comes first")
        return self._journal

    def _file(self, is_failure: bool) -> LineFile:
        if not is_failure:
            if self._rollouts is None:
                raise RuntimeError("begin() comes first")
            return self._rollouts
        if self._failures is None:
            self._failures = LineFile(self.paths.failures)
        return self._failures

    def _replace_old(self) -> tuple[Path, ...]:
        """Remove what an earlier run left here, its rollouts first: without them the rest is no run."""
        old = (self.paths.rollouts, self.paths.failures, self.paths.aggregate)
        existing = tuple(path for path in old if path.exists() and path.stat().st_size > 0)
        health = self.paths.health, self.paths.verdicts
        made = (self.paths.config, self.paths.compose, self.paths.lock, self.paths.rows)
        for path in (*old, *health, *made, self.paths.journal, self.paths.passport):
            path.unlink(missing_ok=True)
        return existing


def _sync(files: Iterable[LineFile | journal.Journal]) -> None:
    for file in files:
        file.sync()
