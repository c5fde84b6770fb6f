"""Which rows an evaluation runs and where its output goes, from a config and the flags."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gymctl.config.model import Config, Dataset
from gymctl.contract.servers import ServerTable
from gymctl.errors import ConfigError, UsageError
from gymctl.rollouts.dataset import Source

_LONGEST_NAME = 80
FLAGS: Mapping[str, str | None] = {
    "agent_name": "--agent",
    "agent_map": None,
    "fan_out": None,
    "input_jsonl_fpath": "--input",
    "interleave_repeats": None,
    "limit": "--limit",
    "num_repeats": "--repeats",
    "num_repeats_add_seed": None,
    "num_samples_in_parallel": "--concurrency",
    "output_jsonl_fpath": "--output",
    "prompt_config": None,
    "responses_create_params": "--temperature, --top-p, --max-output-tokens",
    "resume_from_cache": None,
    "skills": None,
}
"""Settings of an evaluation (CONTRACT 9.2) that are not read from the configuration yet, with their flags."""


def unread_settings(config: Config) -> list[str]:
    """One line for each setting of an evaluation that the configuration holds and nobody reads."""
    lines: list[str] = []
    for key, flag in FLAGS.items():
        if config.document.get(key) is None:
            continue
        place = next((f" ({origin})" for name, origin in config.origins.items() if name.startswith(key)), "")
        instead = f"; use {flag}" if flag else ""
        lines.append(f"`{key}`{place} is not read from the configuration yet{instead}")
    return lines


def sources(config: Config | None, table: ServerTable, given: Path | None) -> list[Source]:
    """The file given on the command line, else the datasets of type benchmark that the config declares."""
    if given is not None:
        return [Source(_found(given, config), fallback=_fallback(config, table))]
    if config is None:
        raise UsageError("there are no rows to run", hint="name a benchmark, or a file: --input rows.jsonl")
    chosen = [dataset for dataset in config.datasets if dataset.type == "benchmark"]
    if not chosen:
        raise UsageError(
            "this configuration declares no dataset of type benchmark", hint=_hint(config.datasets)
        )
    return [
        Source(_path(dataset), repeats=dataset.num_repeats, declared_by=dataset.declared_by)
        for dataset in chosen
    ]


def title(config: Config | None, names: Sequence[str], given: Path | None) -> str:
    """What the run is called in its table and file name: what was selected, else the file of rows."""
    if names:
        return ", ".join(dict.fromkeys(names))
    if given is not None:
        return given.stem
    datasets = config.datasets if config is not None else ()
    return ", ".join(dict.fromkeys(row.name for row in datasets if row.type == "benchmark")) or "run"


def default_output(run_title: str) -> Path:
    """results/<title>-<time>.jsonl; a counter keeps two runs of the same second apart."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_title).strip("-.")[:_LONGEST_NAME] or "run"
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (Path("results") / f"{stem}{suffix}.jsonl" for suffix in _suffixes())
    return next(path for path in candidates if not path.exists())


def _suffixes() -> Iterable[str]:
    yield ""
    for number in range(2, 10_000):
        yield f"-{number}"


def _found(given: Path, config: Config | None) -> Path:
    """As it stands, else below the search roots."""
    if given.exists() or given.is_absolute() or config is None:
        return given
    return next((root / given for root in config.search_roots if (root / given).is_file()), given)


def _path(dataset: Dataset) -> Path:
    if dataset.path is not None:
        return dataset.path
    hint = f"make it: python {dataset.prepare_script}" if dataset.prepare_script else "check `jsonl_fpath`"
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
    agents = [entry.name for entry in table.of_kind("responses_api_agents")]
    return agents[0] if len(agents) == 1 else None


def _hint(datasets: Sequence[Dataset]) -> str:
    if not datasets:
        return "name a file of rows: --input rows.jsonl"
    listed = ", ".join(f"{row.jsonl_fpath} ({row.type})" for row in datasets[:5])
    return f"name a file of rows: --input FILE; declared here: {listed}"
