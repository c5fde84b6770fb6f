"""The files of a run as editors, other tools, full disks and crashes leave them."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymctl.cli.main import main
from gymctl.errors import ConfigError, PrerequisiteError
from gymctl.paths import RunPaths
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.lines import replace
from gymctl.rollouts.measured import Wanted, measure
from gymctl.rollouts.merge import merge
from gymctl.rollouts.resume import ResumeOptions
from gymctl.rollouts.run import Run, RunRequest
from gymctl.rollouts.saved import SavedRun

from .conftest import Bench, FakeEnvironment, scored, table_of, write_rows

Start = Callable[..., Awaitable[FakeEnvironment]]
Make = Callable[..., Bench]
Quirk = Callable[[bytes], bytes]

QUIRKS: dict[str, Quirk] = {
    "blank lines": lambda text: b"\n" + text.replace(b"\n", b"\n  \n"),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "crlf": lambda text: text.replace(b"\n", b"\r\n"),
    "no last newline": lambda text: text.removesuffix(b"\n"),
    "all of them": lambda text: b"\xef\xbb\xbf\r\n" + text.replace(b"\n", b"\r\n \r\n")[:-5],
}


def prepared(fake: FakeEnvironment, rows: Path, output: Path, resume: ResumeOptions | None = None) -> Bench:
    table = table_of(fake.url)
    request = RunRequest([Source(rows)], output, resume=resume or ResumeOptions())
    return Bench(Run.prepare(request, table), table, CollectOptions(4))


async def fails_at_two(row: dict[str, Any], request: web.Request) -> web.Response:
    return scored(row["n"] / 10) if row["n"] != 2 else web.json_response("ValueError('no')", status=500)


@pytest.mark.parametrize("name", QUIRKS)
async def test_b97_harmless_quirks_are_accepted_by_every_reader(
    environment: Start, tmp_path: Path, name: str
) -> None:
    """BUG_CASES B97: in the rows of a run, and in all files of one that is gone on with or counted."""
    quirk = QUIRKS[name]
    fake = await environment(fails_at_two)
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    rows.write_bytes(quirk(rows.read_bytes()))
    made = prepared(fake, rows, tmp_path / "x.jsonl")
    await made.collect()
    assert sorted(row["n"] for row in fake.bodies) == [0, 1, 2, 3]
    assert (made.run.tally.scored, dict(made.run.tally.failed)) == (3, {"environment": 1})
    paths, headline = made.run.paths, made.run.tally.headline()

    for path in (paths.rollouts, paths.failures, paths.inputs):
        path.write_bytes(quirk(path.read_bytes()))
    assert measure([SavedRun.open(paths.rollouts)], Wanted()).tally.headline() == headline
    assert merge([SavedRun.open(paths.rollouts)], tmp_path / "all.jsonl") == 3
    assert len([json.loads(line) for line in (tmp_path / "all.jsonl").read_bytes().splitlines()]) == 3
    again = prepared(fake, rows, paths.rollouts)
    assert (again.run.kept, again.run.owed) == (3, 1)
    assert again.run.notes == ()
    await again.collect()
    assert [(row["n"], row.get("_ng_attempt_index")) for row in fake.bodies[4:]] == [(2, 1)]
    assert again.run.tally.headline() == headline


async def test_b97_one_row_with_a_mark_and_no_newline_is_not_taken_for_a_torn_one(
    environment: Start, tmp_path: Path
) -> None:
    fake = await environment(fails_at_two)
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    made = prepared(fake, rows, tmp_path / "x.jsonl")
    await made.collect()
    path = made.run.paths.rollouts
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().removesuffix(b"\n"))
    again = prepared(fake, rows, path)
    again.run.close()
    assert (again.run.is_done, again.run.notes) == (True, ())


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"])
async def test_b97_a_file_without_rows_is_a_run_of_none(
    environment: Start, tmp_path: Path, text: str
) -> None:
    """BUG_CASES B97: exit 0, '0 rows', an empty output."""
    fake = await environment(fails_at_two)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(text, encoding="utf-8")
    made = prepared(fake, rows, tmp_path / "new" / "x.jsonl")
    assert list(made.run.summary.notices()) == [f"{rows} has no rows", "0 rows: no rollout is made"]
    await made.collect()
    assert fake.bodies == []
    assert made.run.paths.rollouts.read_bytes() == b""
    assert json.loads(made.run.paths.aggregate.read_bytes()) == []
    assert made.run.tally.headline().coverage == 1.0
    again = prepared(fake, rows, made.run.paths.rollouts)
    again.run.close()
    assert again.run.is_done


async def test_b97_a_line_that_is_none_is_named_with_its_column_and_nothing_is_sent(
    environment: Start, tmp_path: Path
) -> None:
    fake = await environment(fails_at_two)
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    good = rows.read_text()
    rows.write_text("\n" + good + "# a comment\n")
    with pytest.raises(ConfigError, match=r"not JSON: .* at column 1") as caught:
        prepared(fake, rows, tmp_path / "x.jsonl")
    assert caught.value.where == f"{rows}:4"
    assert os.listdir(tmp_path) == ["rows.jsonl"]  # noqa: PTH208
    rows.write_text(good)
    made = prepared(fake, rows, tmp_path / "x.jsonl")
    await made.collect()
    path = made.run.paths.rollouts
    path.write_text("# a comment\n" + path.read_text())
    for reads in (
        lambda: prepared(fake, rows, path),
        lambda: measure([SavedRun.open(path)], Wanted()),
    ):
        with pytest.raises(ConfigError, match=r"not JSON: .* at column 1") as caught:
            reads()
        assert caught.value.where == f"{path}:1"
    assert len(fake.bodies) == 2


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user whom the system asks for permission."""
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65_534)
        yield
    finally:
        os.seteuid(user)


async def test_b96_a_place_that_cannot_be_written_is_refused_before_any_request(
    environment: Start,
) -> None:
    """BUG_CASES B96: a folder that is shut, one below it, a parent that is a file."""
    fake = await environment(fails_at_two)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write_rows(folder / "rows.jsonl", 2)
        shut = folder / "shut"
        shut.mkdir(mode=0o555)
        folder.chmod(0o755)  # noqa: ASYNC240
        for output, where in (
            (shut / "x.jsonl", shut),
            (shut / "deep" / "er" / "x.jsonl", shut / "deep" / "er"),
            (rows / "x.jsonl", rows),
        ):
            with as_nobody(), pytest.raises(PrerequisiteError) as caught:
                prepared(fake, rows, output)
            assert (caught.value.where, caught.value.exit_code) == (str(where), 3)
        assert os.listdir(shut) == []  # noqa: PTH208
    assert fake.bodies == []


async def test_b96_an_output_in_new_folders_works(environment: Start, tmp_path: Path) -> None:
    fake = await environment(fails_at_two)
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    made = prepared(fake, rows, tmp_path / "new" / "dir" / "out.jsonl")
    await made.collect()
    assert len(made.records("rollouts")) == 2


async def test_b105_an_empty_metrics_file_is_as_if_it_were_not_there(environment: Start, bench: Make) -> None:
    """BUG_CASES B105, B104: it is told, written anew with its mode, and no rollout is made for it."""
    fake = await environment(fails_at_two)
    first = bench(fake.url, 2)
    await first.collect()
    path = first.run.paths.aggregate
    whole = path.read_bytes()
    path.write_bytes(b"")
    path.chmod(0o640)
    fake.bodies.clear()
    second = bench(fake.url, 2)
    assert (second.run.is_done, second.run.has_aggregate) == (True, False)
    assert second.run.notes == (f"{path.name} is empty, as a crash leaves it; it is written anew",)
    await second.collect()
    assert (fake.bodies, path.read_bytes(), path.stat().st_mode & 0o777) == ([], whole, 0o640)


def test_b105_a_document_is_old_or_new_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    """BUG_CASES B105: 50 times `kill -9`."""
    path = tmp_path / "x_aggregate_metrics.json"
    documents = [json.dumps([letter * 1_000_000]).encode() for letter in "ab"]
    path.write_bytes(documents[0])
    path.chmod(0o640)
    for number in range(50):
        listening, telling = os.pipe()
        writer = os.fork()
        if writer == 0:
            while True:
                documents.reverse()
                replace(path, documents[0])
                os.write(telling, b".")
        os.close(telling)
        assert os.read(listening, 1) == b".", "it has replaced it once"
        time.sleep(number % 10 * 0.004)
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.close(listening)
        assert path.read_bytes() in documents
        assert path.stat().st_mode & 0o777 == 0o640


def test_b105_an_empty_rollouts_file_is_a_run_without_rollouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BUG_CASES B97: the same for `metrics`."""
    paths = RunPaths(tmp_path / "x.jsonl")
    paths.rollouts.write_bytes(b"")
    with pytest.raises(SystemExit) as ended:
        main(["metrics", str(paths.rollouts)])
    assert ended.value.code == 0
    assert "no rollout was planned" in capsys.readouterr().out
