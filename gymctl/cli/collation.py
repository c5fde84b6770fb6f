"""What a configuration declares, collated: for `gymctl dataset collate` and `gymctl eval --collate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from gymctl.cli.eval_input import SPLIT, existing, read_prompt
from gymctl.cli.output import Console
from gymctl.config.checks.collation import CollateSettings, read
from gymctl.config.checks.evaluation import Written
from gymctl.config.model import Config, Dataset
from gymctl.contract.evaluation import EvaluationSettings
from gymctl.errors import ConfigError, UsageError
from gymctl.paths import RunPaths, bundled
from gymctl.rollouts.collate import Collated, Declared, Options, collate
from gymctl.rollouts.task_schema import FILE, TaskSchema

_FACTS = ("jsonl_fpath", "gitlab_identifier", "huggingface_identifier", "license")


def write(
    config: Config,
    types: Sequence[str],
    settings: CollateSettings,
    output: Path,
    console: Console,
    *,
    is_beside: bool,
) -> Collated:
    """Collate the datasets of some types; notes are told."""
    chosen = [dataset for dataset in config.datasets if dataset.type in types]
    if not chosen:
        raise none_declared(config, types)
    for dataset in chosen:
        if config.servers[dataset.declared_by].kind == "responses_api_models":
            raise ConfigError(
                f"`{dataset.declared_by}` is a model server and cannot have `datasets`",
                hint="declare them on the agent or the resources server",
            )
    options = Options(
        output,
        is_beside=is_beside,
        is_overwriting=settings.overwrite_metrics_conflicts,
        is_strict=settings.is_strict,
    )
    with _checked(config, [_declared(config, dataset) for dataset in chosen], settings, console) as declared:
        made = collate(declared, options)
    for note in made.notes:
        console.insist(f"warning: {note}")
    return made


def rows_of_run(config: Config, evaluation: EvaluationSettings, output: Path, console: Console) -> Path:
    """The collated rows of a run's split, in the run's own folder; made anew unless they may be reused."""
    split = evaluation.split or SPLIT
    folder = RunPaths(output).folder / "preprocessed_datasets"
    rows = folder / f"{split}.jsonl"
    if not (evaluation.reuse_existing_data_preparation and rows.is_file()):
        write(config, (split,), read(config.document, config.origins), folder, console, is_beside=False)
    return rows


def check_run(written: Written, *, is_serving: bool) -> None:
    """What a collated run needs and does not go with (CONTRACT 9.1), before anything is written."""
    settings = written.settings
    if not is_serving:
        raise UsageError("--collate and --no-serve do not go together", where="--collate")
    needed = {"output_jsonl_fpath": settings.output_jsonl_fpath, "split": settings.split}
    missing = [key for key, value in needed.items() if value is None]
    if missing:
        raise UsageError(
            f"missing required configuration: {', '.join(missing)}",
            hint="--output FILE and --split train|validation|benchmark",
        )
    if settings.input_jsonl_fpath is not None:
        raise ConfigError(
            "the rows are collated from the declared datasets, so there can be no input file",
            where=written.where("input_jsonl_fpath"),
            hint="--no-serve collects the rows of a file from running servers",
        )


def none_declared(config: Config, types: Sequence[str]) -> ConfigError:
    """No dataset has one of these types; those that there are, are named."""
    listed = ", ".join(f"{row.name} ({row.type}) of {row.declared_by}" for row in config.datasets[:5])
    return ConfigError(
        f"this configuration declares no dataset of type {' or '.join(types)}",
        hint=f"declared: {listed}"
        if listed
        else "a dataset stands in `datasets` of an agent or resources server",
    )


def _declared(config: Config, dataset: Dataset) -> Declared:
    facts = {key: dataset.settings.get(key) for key in _FACTS}
    return Declared(
        declared_by=dataset.declared_by,
        name=dataset.name,
        type=dataset.type,
        path=existing(dataset),
        repeats=dataset.num_repeats,
        taskset=dataset.settings.get("taskset"),
        prompt=read_prompt(dataset.settings.get("prompt_config"), config.search_roots),
        facts=facts,
    )


@contextmanager
def _checked(
    config: Config, datasets: Sequence[Declared], settings: CollateSettings, console: Console
) -> Iterator[list[Declared]]:
    """The datasets with the `TaskData` of their servers, as far as there are any."""
    with ExitStack() as stack:
        schemas: dict[Path, TaskSchema] = {}
        made: list[Declared] = []
        for dataset in datasets:
            folder = _schema_folder(config, dataset.declared_by)
            if folder is None or settings.task_data_validation == "off":
                made.append(dataset)
                continue
            if folder not in schemas:
                try:
                    schemas[folder] = TaskSchema(folder, (bundled(), bundled() / "server_images"))
                except ConfigError as error:
                    if settings.is_strict:
                        raise
                    console.insist(
                        f"warning: rows of `{dataset.name}` are not checked: {error.what} ({error.where})"
                    )
                    made.append(dataset)
                    continue
                stack.callback(schemas[folder].close)
            made.append(replace(dataset, check=schemas[folder].problem))
        yield made


def _schema_folder(config: Config, declared_by: str) -> Path | None:
    """The folder of the resources server that scores the rows, when it says what they hold."""
    block = config.servers[declared_by]
    names = [call.name for call in block.calls if call.kind == "resources_servers"]
    servers = [block, *(config.servers[name] for name in names if name in config.servers)]
    return next((server.folder for server in servers if (server.folder / FILE).is_file()), None)
