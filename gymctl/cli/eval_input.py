"""Which rows an evaluation runs and where its output goes, from a config and the flags."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from gymctl.config.checks.evaluation import EvaluationSettings, Written
from gymctl.config.checks.pairing import WAIVER, is_waived
from gymctl.config.model import Config, Dataset
from gymctl.contract.servers import ServerTable
from gymctl.errors import ConfigError, UsageError
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.route import Routing
from gymctl.rollouts.run import RunRequest

SPLIT = "benchmark"
"""Which datasets are run when nobody says."""
_LONGEST_NAME = 80


def sources(config: Config | None, table: ServerTable, settings: EvaluationSettings) -> list[Source]:
    """The file that is named as input, else the datasets of the split that the config declares."""
    if settings.input_jsonl_fpath is not None:
        given = Path(settings.input_jsonl_fpath)
        return [Source(_found(given, config), fallback=_fallback(config, table))]
    if config is None:
        raise UsageError("there are no rows to run", hint="name a benchmark, or a file: --input rows.jsonl")
    split = settings.split or SPLIT
    chosen = [dataset for dataset in config.datasets if dataset.type == split]
    if not chosen:
        raise UsageError(
            f"this configuration declares no dataset of type {split}", hint=_hint(config.datasets)
        )
    return [
        Source(_path(dataset), repeats=dataset.num_repeats, declared_by=dataset.declared_by)
        for dataset in chosen
    ]


def request(written: Written, rows: Sequence[Source], output: Path) -> RunRequest:
    """What is to be run, in the words of `rollouts`."""
    settings = written.settings
    routing = Routing(
        agent_map=settings.routes,
        fan_out=settings.fan_out,
        mode=settings.environment_routing_mode,
        server=settings.environment_server_name,
        taskset_servers=settings.environment_server_routes,
        allows_any_pairing=is_waived({WAIVER: settings.allow_unsupported_pairing}, os.environ),
    )
    return RunRequest(
        rows,
        output,
        limit=settings.limit,
        repeats=settings.num_repeats,
        routing=routing,
        params=settings.responses_create_params,
        is_seeded=settings.num_repeats_add_seed,
        is_interleaved=settings.interleave_repeats,
        where=written.where,
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
