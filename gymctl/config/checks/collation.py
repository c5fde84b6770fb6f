"""The settings of `dataset collate` and `dataset prepare` (CONTRACT 8.7, 11), from the document, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from gymctl.config.checks.wording import rule
from gymctl.config.model import Origin
from gymctl.config.problems import Problems
from gymctl.config.tree.origins import dotted, place_of
from gymctl.errors import ConfigError

Mode = Literal["train_preparation", "example_validation"]


class CollateSettings(BaseModel):
    """Every key under its own name; null is as if it were not there."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    mode: Mode | None = Field(None, description="train_preparation: train, validation, benchmark.")
    output_dirpath: str | None = Field(None, min_length=1, description="Where the files go.")
    should_download: StrictBool = Field(False, description="Fetch files that are not here.")
    data_source: Literal["huggingface", "gitlab"] = Field("huggingface", description="From where.")
    overwrite_metrics_conflicts: StrictBool = Field(False, description="Replace figures that differ.")
    task_data_validation: Literal["off", "warn", "error", "auto"] = Field(
        "auto", description="Check task fields by the server's `task_data.py`."
    )
    use_cached_prepared_benchmarks: StrictBool = Field(False, description="Do not make files that exist.")
    num_prepare_benchmark_processes: int = Field(1, ge=1, description="Prepare scripts at once.")
    prepare_script_args: dict[str, Any] = Field({}, description="Arguments of `prepare`.")

    @property
    def is_strict(self) -> bool:
        """Whether a row that does not fit the task schema is an error."""
        if self.task_data_validation == "auto":
            return self.mode == "example_validation"
        return self.task_data_validation == "error"


KEYS = tuple(CollateSettings.model_fields)


def read(document: Mapping[str, Any], origins: Mapping[str, Origin]) -> CollateSettings:
    """Raises ConfigError, ConfigErrors for several."""
    raw = {key: document[key] for key in KEYS if document.get(key) is not None}
    if raw.get("task_data_validation") is False:
        raw["task_data_validation"] = "off"  # what YAML 1.1 reads where `off` is written
    problems = Problems()
    try:
        return CollateSettings.model_validate(raw)
    except ValidationError as errors:
        for error in errors.errors():
            key = dotted(error["loc"])
            what = f"`{key}` {rule(error)}, got `{error['input']}`"
            problems.add(ConfigError(what, where=place_of(origins, key)))
    problems.stop()
    raise AssertionError("a ValidationError without errors")
