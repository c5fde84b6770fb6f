"""`gymctl verify`: is it still what it says? Everything that its digests can tell is computed again."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli.from_registry import PlainHttp
from gymctl.errors import UsageError

What = Annotated[
    str,
    typer.Argument(
        metavar="RUN|LOCK|REF",
        help="A rollouts file, its folder, the beginning of its name, @last; an images.lock.json; "
        "a benchmark in a registry, HOST/PATH/NAME:TAG.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="What is not there to be looked at, or was not recorded, fails as well."),
]
Deep = Annotated[
    bool, typer.Option("--deep", help="Of a lock's images read every layer whole, not only its size.")
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Of images a line for each part, also where all of it is ok."),
]


def command(
    what: What,
    strict: Strict = False,
    deep: Deep = False,
    plain_http: PlainHttp = False,
    verbose: Verbose = False,
    json: common.Json = False,
) -> None:
    """Compute the digests of a run, a lock or a benchmark again; exit 9 when something differs.

    One line for each ingredient of a run, each image, the files of a benchmark: `ok`, `differs`, `gone` (not
    there to be looked at, which is no failure without --strict) or `not recorded`. Of a run: its files and
    what its passport says. Of a lock: each image in its registry, its tag, and the image that is here. Of a
    benchmark: every file, and the images of its lock.
    """
    from gymctl.artefacts.reference import is_reference

    if what.endswith(".gymb"):
        hint = f"`gymctl unbundle {what} --dry-run` checks every byte and changes nothing"
        raise UsageError("a bundle is checked where it is opened", where=what, hint=hint)
    is_elsewhere = is_reference(what) and not Path(what).exists()
    is_lock = is_lock_file(Path(what)) or (what.endswith("lock.json") and not is_elsewhere)
    if is_lock or is_elsewhere:
        from gymctl.cli import verify_artefact

        verify_artefact.verify(
            what,
            is_lock=is_lock,
            is_strict=strict,
            is_deep=deep,
            plain_http=plain_http,
            is_verbose=verbose,
            as_json=json,
        )
        return
    from gymctl.cli import verify_run

    verify_run.verify(what, is_strict=strict, as_json=json)


def is_lock_file(path: Path) -> bool:
    """By its name, also of one that is not there, or by what is in it: a passport has images too, but not as
    a list."""
    if path.name.endswith("lock.json"):
        return True
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        found = loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(found, dict) and isinstance(found.get("images"), list)
