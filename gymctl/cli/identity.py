"""What an evaluation is made with: its servers' configuration and code, its settings, its files of rows."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gymctl.cli.eval_input import locate
from gymctl.cli.peer.legacy import PROGRAMS as LEGACY
from gymctl.config.checks.evaluation import Written
from gymctl.config.model import Config, ServerBlock
from gymctl.config.tree import masking
from gymctl.config.tree.writing import as_yaml
from gymctl.contract.servers import ServerTable
from gymctl.images.context import sdk_context, server_context
from gymctl.paths import RunPaths
from gymctl.rollouts import seal
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.passport import Identity, Surroundings
from gymctl.rollouts.prompts import Prompt
from gymctl.rollouts.run import Run
from gymctl.rollouts.saved import SavedRun
from gymctl.rollouts.settings import of_table

_NO_PART = frozenset({"host", "port", "num_workers", "datasets", "domain", "description"})
"""Of a server's block: what does not change a rollout. Datasets count by the rows that come of them."""
_ROW_SETTINGS = (
    *("split", "agent_name", "agent_map", "fan_out", "limit", "num_repeats", "num_repeats_add_seed"),
    *("responses_create_params", "prompt_config", "skills", "environment_routing_mode"),
    *("environment_server_name", "environment_server_routes"),
)
"""They make the rows what they are."""
CODE = ".code"
CONTENT = " (content)"
SDK = "servers.sdk"
"""Keys of the identity: a server's folder, a file that a block names, the part of gymctl in each server."""
_A_FILE = "file"
_NAMES_A_FILE = ("_path", "_file", "_fpath")
_MOST_BYTES = 64_000_000
_SHOWN_FLAG = "--model-api-key"
_OURS = "gymctl"
_FAILURES = ("failure_outcomes", "count_failure_classes_as_zero", "count_missing_rollouts_as_zero")
_RESUMES = frozenset({"resume", "resume_from_cache=true"})


@dataclass(frozen=True, slots=True)
class Repeated:
    """An evaluation that gymctl types itself, to make a run again."""

    words: Sequence[str]
    """The command, the program first."""
    origin: Mapping[str, str]
    """`run` and `output` of the run that it repeats."""
    check: Callable[[Run, Config | None], None]
    """Called before anything is started. Raises IntegrityError."""
    check_surroundings: Callable[[Surroundings], None]
    """Called before the first rollout is sent. Raises IntegrityError."""
    ended: Callable[[RunPaths], None]
    """Told where the rollouts are."""


REPEATED: ContextVar[Repeated | None] = ContextVar("repeated", default=None)


def identity(
    config: Config | None,
    table: ServerTable,
    written: Written,
    rows: Sequence[Source],
    title: str,
    limits: Mapping[str, Any],
    model: str | None = None,
    benchmark: Mapping[str, str] | None = None,
) -> Identity:
    """Everything that a rollout may come out differently for; secrets masked.

    `config` is None when only a running head is known: then its servers count by name and implementation.
    """
    secrets = config.secrets if config is not None else frozenset[str]()
    settings = written.settings.model_dump(mode="json", exclude_none=True)
    asked = {key: settings[key] for key in _ROW_SETTINGS if settings.get(key)}
    return Identity(
        config=dict(of_table(table) if config is None else _of_config(config)),
        settings=dict(_leaves(asked, (), secrets)),
        files=dict(_files(rows)),
        limits=limits,
        title=title,
        model=model,
        command=command(secrets),
        places=dict(_places(config, rows)),
        prompts=tuple(dict.fromkeys(source.prompt.name for source in rows if source.prompt is not None)),
        origins={} if config is None else {key: str(origin) for key, origin in config.origins.items()},
        config_text=_text(config),
        failures_count={key: settings[key] for key in _FAILURES if settings.get(key)},
        benchmark=benchmark or {},
        repeats_run=repeated.origin if (repeated := REPEATED.get()) is not None else {},
    )


def of_rescored(config: Config | None, table: ServerTable, run: SavedRun) -> Identity:
    """What a run is scored again with: its answers, and the verifiers of `config`, or of a running head."""
    secrets = config.secrets if config is not None else frozenset[str]()
    answers = [path for path in (run.paths.rollouts, run.paths.failures) if path.is_file()]
    return Identity(
        config=dict(of_table(table) if config is None else _of_config(config)),
        files={str(path): seal.sha256(path) for path in answers},
        title=f"{run.paths.rollouts.stem}, scored again",
        command=command(secrets),
        places={**dict(_places(config, ())), **{str(path): str(path.resolve()) for path in answers}},
        origins={} if config is None else {key: str(origin) for key, origin in config.origins.items()},
        config_text=_text(config),
    )


def command(secrets: Collection[str]) -> list[str]:
    """The command line as it was typed, without secrets."""
    repeated = REPEATED.get()
    words = [_program(), *sys.argv[1:]] if repeated is None else list(repeated.words)
    for number, word in enumerate(words[:-1]):
        if word == _SHOWN_FLAG:
            words[number + 1] = masking.MASK
    return [
        f"{_SHOWN_FLAG}={masking.MASK}"
        if word.startswith(f"{_SHOWN_FLAG}=")
        else masking.redact(word, secrets)
        for word in words
    ]


def same_command(
    secrets: Collection[str], output: Path, *, names_output: bool, cap: str | None = None
) -> str:
    """What to type to go on with this run; without the cap at which it has stopped, which still holds."""
    words = [word for word in command(secrets) if word not in ("--fresh", "--resume-anyway")]
    if cap is not None:
        words = list(_without(words, cap))
    if not names_output:
        words += [f"+output_jsonl_fpath={output}"] if words[0] in LEGACY else ["-o", str(output)]
    if words[0] != _OURS and not _RESUMES.intersection(word.lstrip("+-") for word in words):
        words.append("+resume_from_cache=true")  # in the peer's spelling a run starts over unless it is told
    return shlex.join(words)


def _program() -> str:
    """As it was called, so that the other words mean the same again."""
    name = Path(sys.argv[0]).name
    return name if name == "gym" or name in LEGACY else _OURS


def _without(words: Sequence[str], flag: str) -> Iterator[str]:
    """The words but for a flag and its value."""
    rest = iter(words)
    for word in rest:
        if word == flag:
            next(rest, None)
        elif not word.startswith(f"{flag}="):
            yield word


def _text(config: Config | None) -> str:
    return "" if config is None else as_yaml(masking.mask(config.document, config.secrets))


def _of_config(config: Config) -> Iterator[tuple[str, Any]]:
    folders: dict[Path, str] = {}
    for block in config.servers.values():
        settings = {key: value for key, value in block.settings.items() if key not in _NO_PART}
        yield from _leaves(settings, block.path, config.secrets)
        yield from ((key, seal.sha256(path)) for key, path in _named_files(block))
        if block.folder not in folders:
            folders[block.folder] = f"sha256:{server_context(block.folder).digest()}"
        yield f"{block.name}{CODE}", folders[block.folder]
    yield SDK, f"sha256:{sdk_context().digest()}"


def _places(config: Config | None, rows: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Where that lies whose digest is in `config` and `files`."""
    for source in rows:
        if source.path.is_file():
            yield str(source.path), str(source.path.resolve())
        if source.prompt is not None and config is not None:
            yield source.prompt.name, str(locate(source.prompt.name, config.search_roots).resolve())
    if config is None:
        return
    for block in config.servers.values():
        yield f"{block.name}{CODE}", str(block.folder.resolve())
        for key, path in _named_files(block):
            yield key, str(path.resolve())


def _named_files(block: ServerBlock) -> Iterator[tuple[str, Path]]:
    """The files that a block names: a script of answers, a cassette that is played. Not what is written
    during the run, and not models of gigabytes."""
    mounts = block.settings.get("mounts")
    entries = cast(list[Any], mounts) if isinstance(mounts, list) else []
    written = [entry["path"] for entry in entries if isinstance(entry, Mapping) and entry.get("writable")]
    for key, value in block.settings.items():
        names_one = key == _A_FILE or key.endswith(_NAMES_A_FILE)
        if isinstance(value, str) and names_one and value not in written:
            path = block.folder / value
            with suppress(OSError, ValueError):  # too long for a name, or not ours to read
                if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                    yield f"{'.'.join(block.path)}.{key}{CONTENT}", path


def _leaves(
    value: Any, path: tuple[str, ...], secrets: Collection[str], in_headers: bool = False
) -> Iterator[tuple[str, Any]]:
    """Dotted key and value of everything below; a list is one value."""
    if isinstance(value, Mapping) and value:
        for key, inner in cast(Mapping[str, Any], value).items():
            is_header = in_headers or masking.is_header(key)
            yield from _leaves(inner, (*path, str(key)), secrets, is_header)
        return
    key = path[-1]
    is_hidden = masking.is_secret(key) and not masking.tells_nothing(key, value)
    yield ".".join(path), masking.MASK if in_headers or is_hidden else masking.mask(value, secrets)


def _files(rows: Sequence[Source]) -> Iterator[tuple[str, str]]:
    for source in rows:
        if source.path.is_file():
            yield str(source.path), seal.sha256(source.path)
        if (prompt := source.prompt) is not None:
            yield prompt.name, prompt_digest(prompt)


def prompt_digest(prompt: Prompt) -> str:
    """Of what it says: comments in its file do not count."""
    text = f"{prompt.system}\0{prompt.user}".encode("utf-8", "surrogatepass")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
