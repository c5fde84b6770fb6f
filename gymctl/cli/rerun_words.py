"""The words of a recorded `gymctl eval` as they are typed again: another output, and secrets by file.

A secret that was typed is kept nowhere. Where it stood, the passport has `****`; it is asked for by the key
that it was the value of: `--set-file KEY=FILE`, or on a terminal.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gymctl.artefacts.reference import is_reference
from gymctl.cli.peer import legacy, translate
from gymctl.config.tree.masking import MASK
from gymctl.errors import IntegrityError, UsageError
from gymctl.rollouts.passport import Passport

_OUTPUT = "output_jsonl_fpath"
_VALUED = ("-o", "--output", "--lock")
_DROPPED = (
    *("--fresh", "--fresh-by-default", "--resume-anyway", "--keep-up", "--json", "--quiet", "-q"),
    "--locked",
)
_KEYS = {
    "--model-api-key": "policy_api_key",
    "--model-url": "policy_base_url",
    "--model": "policy_model_name",
}


def of(told: Passport, output: Path, *, lock: Path | None, set_files: Sequence[str]) -> list[str]:
    """`eval …`. Raises IntegrityError: it was no evaluation; UsageError: a secret is needed."""
    words = list(_without_output(_ours(told)))
    words = list(_with_secrets(words, set_files))
    if told.machine.runtime and not _has(words, "--runtime") and not _has(words, "--no-serve"):
        words += ["--runtime", told.machine.runtime]
    if told.benchmark:  # it brings its own lock
        return [*(_pinned(word, told.benchmark.get("digest")) for word in words), "-o", str(output)]
    if lock is not None and told.machine.runtime == "compose" and not _has(words, "--no-serve"):
        words += ["--locked", "--lock", str(lock)]
    return [*words, "-o", str(output)]


def _ours(told: Passport) -> list[str]:
    """In gymctl's own spelling."""
    if not told.command:
        raise IntegrityError("the passport does not say by which command the run was made")
    program, *words = told.command
    if program in legacy.PROGRAMS:
        program, words = "gym", [*legacy.command(program), *words]
    if program == "gym":
        translated = translate(words)
        words = translated if isinstance(translated, list) else []
    if not words or words[0] != "eval":
        raise IntegrityError("the run was not made by `gymctl eval`", details=[" ".join(told.command)])
    return words


def _without_output(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in _VALUED:
            next(rest, None)
        elif not _is_dropped(word):
            yield word


def _is_dropped(word: str) -> bool:
    is_joined = word.startswith(("-o", *(f"{flag}=" for flag in _VALUED)))
    return word in _DROPPED or is_joined or word.lstrip("+").startswith(f"{_OUTPUT}=")


def _with_secrets(words: Sequence[str], set_files: Sequence[str]) -> Iterator[str]:
    """Without the words that were masked; what they said comes from files, or is asked for."""
    given = {entry.partition("=")[0] for entry in set_files}
    rest = iter(words)
    for word in rest:
        flag = _KEYS.get(word)
        value = next(rest, "") if flag is not None else word.partition("=")[2]
        key = flag or _KEYS.get(word.partition("=")[0]) or word.partition("=")[0].lstrip("+~")
        if key in given:
            continue
        if MASK in value:
            yield f"++{key}={_asked(key)}"
        else:
            yield word
            if flag is not None:
                yield value
    for entry in set_files:
        yield from ("--set-file", entry)


def _pinned(word: str, digest: str | None) -> str:
    """A benchmark in a registry by its digest, wherever its tag has gone since."""
    if not digest or "@" in word or not is_reference(word):
        return word
    return f"{word}@{digest}"


def _asked(key: str) -> str:
    """From the terminal; it goes no further than this process."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"the value of `{key}` was typed at first, and secrets are not kept",
            where=key,
            hint=f"--set-file {key}=FILE reads it from a file",
        )
    return getpass.getpass(f"{key}: ")


def _has(words: Sequence[str], flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)
