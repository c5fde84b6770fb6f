"""The top-level keys that mean something to gymctl or to a server: types, defaults, meaning (CONTRACT 1.14).

One field per key, null is the default. The keys of an evaluation (CONTRACT 9.2) stand
elsewhere; the names of directives are no values.
"""

from __future__ import annotations

import math
import sys
from numbers import Real
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gymctl.config.checks.build_keys import BuildKeys
from gymctl.config.checks.instances import as_port, is_whole
from gymctl.config.checks.rules import Text, rule


def _whole(least: int, most: int | None = None) -> BeforeValidator:
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"
    return rule(
        f"must be a whole number, {bounds}",
        lambda value: is_whole(value) and value >= least and (most is None or value <= most),
    )


def _is_seconds(value: Any) -> bool:
    if isinstance(value, str):
        try:
            return math.isfinite(float(value))
        except ValueError:
            return False
    return _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, int):  # of any length: 400 digits fit no float
        return not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, Real) and math.isfinite(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


Port = Annotated[Annotated[int, Field(ge=1, le=65535)] | None, _whole(1, 65535)]
Limit = Annotated[Annotated[int, Field(ge=0)] | None, _whole(0)]
Count = Annotated[Annotated[int, Field(ge=1)] | None, _whole(1)]
KeepAliveSeconds = Annotated[Annotated[int, Field(ge=1, le=32767)] | None, _whole(1, 32767)]
Probes = Annotated[Annotated[int, Field(ge=1, le=127)] | None, _whole(1, 127)]
Boolean = Annotated[bool | None, rule("must be true or false", lambda value: isinstance(value, bool))]
Written = Annotated[str | None, rule("must be text", lambda value: isinstance(value, str))]
"""Text that may be empty: commands that need no model set the keys of the model to it."""
Urls = Annotated[
    str | list[str] | None,
    rule("must be text, or a list of texts", lambda value: isinstance(value, str) or _is_texts(value)),
]
"""One URL, empty as above, or one for each replica."""
Folder = Annotated[str | None, rule("must be a folder", lambda value: isinstance(value, str) and value != "")]
AbsoluteFolder = Annotated[
    str | None,
    rule(
        "must be an absolute path of a folder",
        lambda value: isinstance(value, str) and PurePath(value).is_absolute(),
    ),
]
Seconds = Annotated[float | str | None, rule("must be a number of seconds", _is_seconds)]
Number = Annotated[float | None, rule("must be a number", _is_number)]
Ports = Annotated[
    list[int | str] | None,
    rule(
        "must be a list of port numbers",
        lambda value: isinstance(value, list) and all(as_port(port) for port in value),
    ),
]
Texts = Annotated[list[str] | None, rule("must be a list of texts", _is_texts)]
Mapping = Annotated[dict[str, Any] | None, rule("must be a mapping", lambda value: isinstance(value, dict))]


class TokenIdCapture(BaseModel):
    """The `token_id_capture` block (CONTRACT 15.3); a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    enabled: Boolean = Field(False, description="Capture the token ids of model calls.")
    all_agents: Boolean = Field(False, description="Also of agents that do not ask for it.")
    dir: AbsoluteFolder = Field(None, description="Where; default `model_call_capture_dir`.")
    sink: Text = Field(None, description="`module:Class` that takes the records.")
    sink_kwargs: Mapping = Field(None, description="Its arguments.")
    lineage_store: Text = Field(None, description="`module:Class` that resolves parents of calls.")
    lineage_store_kwargs: Mapping = Field(None, description="Its arguments.")
    rebuild_response: Boolean = Field(True, description="Put the token ids into the result's response.")
    allow_unresolved_continuations: Boolean = Field(False, description="Keep calls whose parent is unknown.")
    delta_records: Boolean = Field(False, description="Store what was added since the parent.")
    max_mask_fraction: Number = Field(None, description="More masked rollouts than this end the run.")
    mask_fraction_min_samples: Count = Field(50, description="Rollouts before that is asked.")
    external_staging: Boolean = Field(False, description="The trainer's workers hold the records.")
    external_staging_backend: Annotated[
        Literal["vllm_worker", "megatron_worker"] | None,
        rule(
            "must be vllm_worker or megatron_worker",
            lambda value: value in ("vllm_worker", "megatron_worker"),
        ),
    ] = Field("vllm_worker", description="Whose workers.")
    control_auth_token_env: Text = Field(
        "NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN", description="Variable that holds the control token."
    )


class ReservedKeys(BaseModel):
    """Top-level keys that can never be the id of a server."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    config_paths: Texts = Field(None, description="Files to include, resolved over the search roots.")
    entrypoint: Text = Field(None, description="Target folder of single-server commands.")
    default_host: Text = Field(None, description="Host of every server that names none.")
    use_absolute_ip: Boolean = Field(False, description="Use this machine's own address as default host.")
    head_server: Mapping = Field(None, description="Of the head: `host`, `port` (11000), `masked` (true).")
    port_range_low: Port = Field(10001, description="Lowest port that is given away.")
    port_range_high: Port = Field(20000, description="Highest port that is given away.")
    disallowed_ports: Ports = Field(None, description="Ports that are not given away.")
    server_spinup_timeout_seconds: Seconds = Field(
        600, description="Seconds until every server must answer; 0 and below: no bound."
    )
    model_endpoint_readiness_timeout_seconds: Seconds = Field(
        600, description="Seconds until the model endpoint must answer; 0 and below: not asked."
    )
    dry_run: Boolean = Field(False, description="Build, serve nothing.")
    results_dir: Folder = Field(None, description="Where results are written; default `results`.")
    cache_dir: Folder = Field(None, description="Default `cache`.")
    uv_cache_dir: Folder = Field(None, description="uv's cache; default `<cache_dir>/uv`.")
    uv_lock_timeout_seconds: Number = Field(None, description="How long uv waits for its lock.")
    uv_venv_dir: Folder = Field(None, description="Root of virtual environments.")
    skip_venv_if_present: Boolean = Field(False, description="Keep an environment that is there.")
    uv_pip_set_python: Boolean = Field(False, description="Name the interpreter to uv.")
    pip_install_verbose: Any = Field(None, description="Show what an installation does.")
    head_server_deps: Any = Field(None, description="Packages of the head; computed.")
    python_version: Any = Field(None, description="Version of the interpreter; computed.")
    allow_openai_version_skew: Boolean = Field(False, description="Servers may hold another openai.")
    ray_head_node_address: Text = Field(
        None, description="A Ray cluster to join; unset: one of the project's own."
    )
    hf_token: Any = Field(None, description="Token of Hugging Face.")
    nemo_gym_log_dir: Folder = Field(None, description="A copy of each server's log, `<dir>/<id>.log`.")
    verbose: Boolean = Field(False, description="Every server logs at level DEBUG.")
    json_: Any = Field(None, alias="json", description="Of the command line.")
    query: Any = Field(None, description="Of the command line.")
    component_name: Any = Field(None, description="Of the command line.")
    observability_enabled: Boolean = Field(False, description="Capture model calls.")
    model_call_capture_dir: AbsoluteFolder = Field(None, description="Where captured calls are written.")
    token_id_capture: TokenIdCapture | None = Field(None, description="Capture of token ids for training.")
    build: BuildKeys | None = Field(None, description="How builds reach packages and the base image.")
    telemetry: Mapping = Field(None, description="OpenTelemetry.")
    skip_verification: Boolean = Field(None, description="Agents skip the verifier.")
    skip_verification_reward: Number = Field(None, description="The reward of skipped verification.")
    allow_unsupported_pairing: Any = Field(None, description="Waives the gates of --agent-type.")
    nemo_gym_relays: Boolean = Field(False, description="NeMo Gym's own relays instead of ours, with Ray.")
    start_anyway: Boolean = Field(False, description="Start servers whose needs are not met (gymctl list).")
    environment_server_name: Text = Field(None, description="Every flat row goes to this server.")
    environment_server_routes: Mapping = Field(None, description="By taskset: the environment server.")
    environment_routing_mode: Annotated[
        Literal["agent", "legacy", "taskset"] | None,
        rule("must be agent, legacy or taskset", lambda value: value in ("agent", "legacy", "taskset")),
    ] = Field("agent", description="How rows find their environment server.")


class GlobalKeys(ReservedKeys):
    """What stands at the top level of a merged configuration beside the servers."""

    error_on_almost_servers: Boolean = Field(True, description="A block that is nearly a server is an error.")
    error_on_agent_without_environment_server: Boolean = Field(
        False, description="Do not generate environment servers."
    )
    policy_base_url: Urls = Field(None, description="Where the policy model is served; a list of replicas.")
    policy_api_key: Written = Field(None, description="Key of the policy model.")
    policy_model_name: Written = Field(None, description="Name of the policy model.")
    global_aiohttp_connector_limit: Limit = Field(
        102400, description="Connections of all workers of a server; 0: no limit."
    )
    global_aiohttp_connector_limit_per_host: Limit = Field(1024, description="The same, to one host.")
    global_aiohttp_intended_concurrency: Count = Field(None, description="Warns where limits are lower.")
    global_aiohttp_intended_concurrency_per_host: Count = Field(
        None, description="Warns where limits are lower."
    )
    global_aiohttp_client_request_debug: Boolean = Field(False, description="Say more about failures.")
    global_aiohttp_tcp_keepalive_idle_seconds: KeepAliveSeconds = Field(60, description="TCP keep-alive.")
    global_aiohttp_tcp_keepalive_interval_seconds: KeepAliveSeconds = Field(10, description="TCP keep-alive.")
    global_aiohttp_tcp_keepalive_probes: Probes = Field(3, description="TCP keep-alive.")
    ray_workers: Count = Field(1, description="Worker containers of the project's own Ray cluster.")
    ray_dashboard_port: Port = Field(None, description="Publish Ray's dashboard here, on loopback.")
    uvicorn_timeout_worker_healthcheck: Count = Field(30, description="Seconds a worker may be silent.")
    uvicorn_logging_show_200_ok: Boolean = Field(False, description="Show the access log.")
    uvicorn_proxy_headers: Boolean = Field(False, description="Trust `X-Forwarded-*`.")
    uvicorn_forwarded_allow_ips: Texts = Field(None, description="Addresses and networks of proxies.")
    profiling_enabled: Boolean = Field(False, description="Serve `GET /stats`.")
    profiling_results_dirpath: Folder = Field(None, description="Where profiles are written.")
    wandb_project: Any = Field(None, description="Weights & Biases; on when all three keys are set.")
    wandb_name: Any = Field(None, description="Name of the run at Weights & Biases.")
    wandb_api_key: Any = Field(None, description="Key of Weights & Biases.")
    mlflow_tracking_uri: Any = Field(None, description="MLflow; on when the first three keys are set.")
    mlflow_experiment_name: Any = Field(None, description="Experiment at MLflow.")
    mlflow_run_name: Any = Field(None, description="Name of the run at MLflow.")
    mlflow_tracking_token: Any = Field(None, description="Token of MLflow.")
    upload_rollouts: Boolean = Field(True, description="Exporters upload rollouts.")
    upload_rollouts_to_wandb: Boolean = Field(None, description="The old name of `upload_rollouts`.")


def _names(keys: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in keys.model_fields.items())


NAMES = _names(GlobalKeys)
RESERVED = frozenset((*_names(ReservedKeys), "_inherit_from", "_copy"))
"""Never the id of a server."""
