"""The keys of a server block that mean the same for every server (CONTRACT 1.1-1.3), by name and for editors.

What is refused is decided elsewhere (`instances`, `datasets`); these models say what exists.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gymctl.config.checks.datasets import LICENSES, TYPES
from gymctl.config.checks.instances import DOMAINS
from gymctl.contract.servers import ServerKind


class _Keys(BaseModel):
    """Keys that are read by name far more often than they are validated: built when that is asked for."""

    model_config = ConfigDict(defer_build=True)


class ServerReference(_Keys):
    """Another server, by instance id."""

    type: ServerKind = Field(description="The server type of the instance.")
    name: str = Field(description="The instance id: its top-level key.")


class DatasetSource(_Keys):
    """Where a dataset is fetched from."""

    type: Literal["gitlab", "huggingface"]
    dataset_name: str | None = None
    version: str | None = None
    artifact_fpath: str | None = None
    repo_id: str | None = None


class DatasetEntry(_Keys):
    """One file of rows that an agent or a resources server declares."""

    name: str
    type: str = Field(
        description="What the rows are for; `gymctl eval` runs those of `benchmark`.",
        json_schema_extra={"enum": list(TYPES)},
    )
    jsonl_fpath: str = Field(description="The rows; a relative path is looked for in the search roots.")
    license: str | None = Field(
        default=None,
        description="Needed for train and validation.",
        json_schema_extra={"examples": list(LICENSES)},
    )
    num_repeats: int = Field(default=1, ge=1, description="Rollouts of each row.")
    taskset: str | None = Field(default=None, min_length=1)
    prepare_script: str | None = Field(
        default=None, description="Makes the file of rows; needed for benchmarks."
    )
    prepare_dependencies: list[str] = Field(
        default=[], description="Packages of the prepare script, as `uv pip install` takes them."
    )
    prompt_config: str | None = Field(default=None, description="A YAML file of prompts for the rows.")
    agent: str | None = Field(
        default=None, description="The agent that runs the rows; not together with taskset."
    )
    source: DatasetSource | None = None
    gitlab_identifier: dict[str, Any] | None = Field(default=None, deprecated=True)
    huggingface_identifier: dict[str, Any] | None = Field(default=None, deprecated=True)


class ContainerResources(_Keys):
    """What the server's container may use."""

    model_config = ConfigDict(extra="forbid")

    memory: str | int | None = Field(default=None, description="A size such as `512m` or `2g`.")
    cpus: float | None = Field(default=None, description="How many processors.")
    pids: int | None = Field(default=None, description="How many processes and threads.")
    gpus: int | Literal["all"] | None = Field(default=None, description="How many GPUs of the engine.")


class GenericBlock(_Keys):
    """A server block (level 3)."""

    entrypoint: str = Field(description="The file in the server folder that is run, usually app.py.")
    domain: str | None = Field(
        default=None,
        description="What its tasks are about; required for resources servers.",
        json_schema_extra={"enum": [*DOMAINS, None]},
    )
    host: str | None = Field(default=None, description="Filled in when it is missing.")
    port: int | str | None = Field(
        default=None, description="The port on this machine; a free one when it is missing."
    )
    num_workers: int | None = Field(default=None, ge=1, description="How many processes answer requests.")
    description: str | None = Field(default=None, description="For people.")
    value: str | None = Field(default=None, description="For people: what training on it improves.")
    verified: bool | None = Field(default=None, description="Whether training on it was shown to help.")
    verified_url: str | None = Field(default=None, description="Where that is shown.")
    allowed_agents: list[str] | str | None = Field(
        default=None, description="Agents that may run its tasks; all when it is missing."
    )
    allowed_model_types: list[str] | str | None = Field(
        default=None, description="Model servers that its agents may use; all when it is missing."
    )
    expose_tools_over_mcp: bool = Field(default=False, description="Serve the tools over MCP too.")
    skip_verification: bool | None = Field(default=None, description="Rollouts end without a verification.")
    skip_verification_reward: float | None = Field(
        default=None, description="The reward of a rollout that was not verified."
    )
    datasets: list[DatasetEntry] | None = None
    resources: ContainerResources | dict[str, Any] | None = None
    mounts: list[str | dict[str, Any]] | Any = Field(
        default=None, description="Absolute paths of this machine that the server may read."
    )


class AgentBlock(GenericBlock):
    """The block of an agent; what it is bound to comes from the benchmark, whatever the agent makes of it."""

    resources_server: ServerReference | None = Field(default=None, description="Its tools and verifier.")
    model_server: ServerReference | None = Field(default=None, description="The model that it asks.")


def generic_block(kind: ServerKind) -> type[GenericBlock]:
    return AgentBlock if kind == "responses_api_agents" else GenericBlock
