"""Which rows an evaluation runs and where its output goes, from a config and the flags."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gymctl.cli.eval_flags import EvalFlags
from gymctl.config.checks.evaluation import Written
from gymctl.config.checks.pairing import WAIVER, is_waived
from gymctl.config.model import Config, Dataset
from gymctl.config.reading.roots import SearchRoots
from gymctl.contract.evaluation import EvaluationSettings
from gymctl.contract.servers import ServerTable
from gymctl.errors import ConfigError, UsageError
from gymctl.metrics.tally import Price
from gymctl.paths import RunPaths
from gymctl.rollouts.attempts import AttemptPolicy
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.passport import Identity
from gymctl.rollouts.prompts import Prompt
from gymctl.rollouts.resume import ResumeOptions
from gymctl.rollouts.run import RunRequest
from gymctl.rollouts.settings import only_agent, routing
from gymctl.rollouts.skills import skills_ref

SPLIT = "benchmark"
"""Which datasets are run when nobody says."""
_LONGEST_NAME = 80


def sources(
    config: Config | None, table: ServerTable, settings: EvaluationSettings, roots: Sequence[Path]
) -> list[Source]:
    """The file that is named as input, else the datasets of the split that the config declares.

    Datasets are read in the order of their names: the ids of tasks do not depend on that of a command line.
    """
    prompt = read_prompt(settings.prompt_config, roots)
    if settings.input_jsonl_fpath is not None:
        given = locate(settings.input_jsonl_fpath, roots)
        return [Source(given, fallback=_fallback(config, table), prompt=prompt)]
    if config is None:
        raise UsageError("there are no rows to run", hint="name a benchmark, or a file: --input rows.jsonl")
    split = settings.split or SPLIT
    chosen = [dataset for dataset in config.datasets if dataset.type == split]
    if not chosen:
        raise ConfigError(
            f"this configuration declares no dataset of type {split}", hint=_hint(config.datasets)
        )
    chosen.sort(key=lambda dataset: (dataset.declared_by, dataset.name))
    return [
        Source(
            existing(dataset),
            repeats=dataset.num_repeats,
            declared_by=dataset.declared_by,
            prompt=prompt or read_prompt(dataset.settings.get("prompt_config"), roots),
        )
        for dataset in chosen
    ]


def request(
    written: Written,
    rows: Sequence[Source],
    output: Path,
    roots: Sequence[Path],
    resume: ResumeOptions,
    identity: Identity,
    price: Price | None = None,
) -> RunRequest:
    """What is to be run, in the words of `rollouts`."""
    settings = written.settings
    waived = is_waived({WAIVER: settings.allow_unsupported_pairing}, os.environ)
    return RunRequest(
        rows,
        output,
        limit=settings.limit,
        repeats=settings.num_repeats,
        routing=routing(settings, allows_any_pairing=waived),
        params=settings.responses_create_params,
        is_seeded=settings.num_repeats_add_seed,
        is_interleaved=settings.interleave_repeats,
        skills=None if settings.skills is None else _skills(settings.skills.path, roots),
        price=price,
        where=written.where,
        resume=resume,
        identity=identity,
    )


def resume_options(settings: EvaluationSettings, asked: EvalFlags, most_attempts: int) -> ResumeOptions:
    """What to do with results that are there. Only a flag replaces them."""
    return ResumeOptions(
        is_fresh=asked.is_fresh or (asked.is_fresh_by_default and not settings.resume_from_cache),
        is_asked=settings.resume_from_cache,
        goes_on_anyway=asked.goes_on_anyway,
        policy=AttemptPolicy(most_attempts, settings.retry_terminal_timeouts),
        retries_invalid_judgements=settings.retry_invalid_judge_responses,
        is_longest_first=settings.dispatch_longest_first,
    )


def title(config: Config | None, names: Sequence[str], settings: EvaluationSettings) -> str:
    """What the run is called in its table and file name: what was selected, else the file of rows."""
    if names:
        return ", ".join(dict.fromkeys(names))
    if settings.input_jsonl_fpath is not None:
        return Path(settings.input_jsonl_fpath).stem
    datasets = config.datasets if config is not None else ()
    split = settings.split or SPLIT
    return ", ".join(dict.fromkeys(row.name for row in datasets if row.type == split)) or "run"


def default_outputs(run_title: str) -> Iterator[Path]:
    """results/<title>-<time>.jsonl, then with a counter, which keeps two runs of the same second apart."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_title).strip("-.")[:_LONGEST_NAME] or "run"
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (RunPaths(Path("results") / f"{stem}{suffix}.jsonl") for suffix in _suffixes())
    return (
        paths.rollouts for paths in candidates if not paths.rollouts.exists() and not paths.folder.exists()
    )


def _suffixes() -> Iterable[str]:
    yield ""
    for number in range(2, 10_000):
        yield f"-{number}"


def locate(name: str, roots: Sequence[Path]) -> Path:
    """As it stands, else below the search roots."""
    given = Path(name)
    if given.exists() or given.is_absolute():
        return given
    return next((root / given for root in roots if (root / given).exists()), given)


def search_roots(config: Config | None, search_dir: Sequence[str]) -> Sequence[Path]:
    """The folders below which relative names are looked for; without a configuration those of the flags."""
    if config is not None:
        return config.search_roots
    return SearchRoots.of(Path.cwd(), os.environ, search_dir).folders


def read_prompt(name: str | None, roots: Sequence[Path]) -> Prompt | None:
    return None if name is None else Prompt.read(locate(name, roots), name)


def _skills(name: str, roots: Sequence[Path]) -> dict[str, Any]:
    return skills_ref(locate(name, roots).resolve())


def existing(dataset: Dataset) -> Path:
    """The file of a dataset. Raises ConfigError when it was never made."""
    if dataset.path is not None:
        return dataset.path
    makes = "make it: `gymctl dataset prepare` with the same --search-dir, --benchmark and configs"
    hint = makes if dataset.prepare_script else "check `jsonl_fpath`"
    raise ConfigError(
        f"the dataset `{dataset.name}` of `{dataset.declared_by}` has no file here",
        where=dataset.jsonl_fpath,
        hint=hint,
    )


def _fallback(config: Config | None, table: ServerTable) -> str | None:
    """Who runs rows that name nobody: the one instance that declares datasets, or the only agent."""
    declaring = {dataset.declared_by for dataset in config.datasets} if config else set()
    if len(declaring) == 1:
        return declaring.pop()
    return only_agent(table)


def _hint(datasets: Sequence[Dataset]) -> str:
    if not datasets:
        return "name a file of rows: --input rows.jsonl"
    listed = ", ".join(f"{row.jsonl_fpath} ({row.type})" for row in datasets[:5])
    return f"name a file of rows: --input FILE; declared here: {listed}"
