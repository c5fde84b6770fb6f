"""The top-level keys that gymctl itself acts on: reserved names, defaults, types (CONTRACT 1.14)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from gymctl.config.instances import is_whole
from gymctl.config.model import GlobalSettings
from gymctl.config.origins import Origins
from gymctl.contract.part import Pool
from gymctl.errors import ConfigError

PORT_RANGE = (10001, 20000)
_SPINUP_SECONDS = 600.0

RESERVED = frozenset(
    (
        "config_paths",
        "entrypoint",
        "default_host",
        "use_absolute_ip",
        "head_server",
        "port_range_low",
        "port_range_high",
        "disallowed_ports",
        "server_spinup_timeout_seconds",
        "model_endpoint_readiness_timeout_seconds",
        "dry_run",
        "results_dir",
        "cache_dir",
        "uv_cache_dir",
        "uv_lock_timeout_seconds",
        "uv_venv_dir",
        "skip_venv_if_present",
        "uv_pip_set_python",
        "pip_install_verbose",
        "head_server_deps",
        "python_version",
        "allow_openai_version_skew",
        "ray_head_node_address",
        "hf_token",
        "nemo_gym_log_dir",
        "verbose",
        "json",
        "query",
        "component_name",
        "observability_enabled",
        "model_call_capture_dir",
        "token_id_capture",
        "telemetry",
        "skip_verification",
        "skip_verification_reward",
        "allow_unsupported_pairing",
        "environment_server_name",
        "environment_server_routes",
        "environment_routing_mode",
        "_inherit_from",
        "_copy",
    )
)
"""Never the id of a server."""

_BOOLEANS = (
    "use_absolute_ip",
    "dry_run",
    "skip_venv_if_present",
    "uv_pip_set_python",
    "allow_openai_version_skew",
    "verbose",
    "observability_enabled",
    "error_on_almost_servers",
    "error_on_agent_without_environment_server",
    "global_aiohttp_client_request_debug",
    "uvicorn_logging_show_200_ok",
    "uvicorn_proxy_headers",
    "profiling_enabled",
    "upload_rollouts",
)
_POOL = {
    "global_aiohttp_connector_limit": ("limit", 0, None),
    "global_aiohttp_connector_limit_per_host": ("limit_per_host", 0, None),
    "global_aiohttp_tcp_keepalive_idle_seconds": ("keepalive_idle_seconds", 1, 32767),
    "global_aiohttp_tcp_keepalive_interval_seconds": ("keepalive_interval_seconds", 1, 32767),
    "global_aiohttp_tcp_keepalive_probes": ("keepalive_probes", 1, 127),
}
_WHOLE = {
    "port_range_low": (1, 65535),
    "port_range_high": (1, 65535),
    "global_aiohttp_intended_concurrency": (1, None),
    "global_aiohttp_intended_concurrency_per_host": (1, None),
    "uvicorn_timeout_worker_healthcheck": (1, None),
}


def settings(document: Mapping[str, Any], origins: Origins) -> GlobalSettings:
    """Checked values with defaults. Null means the default."""
    for key in _BOOLEANS:
        value = document.get(key)
        if value is not None and not isinstance(value, bool):
            raise _wrong(key, "must be true or false", value, origins)
    for key, (low, high) in _WHOLE.items():
        _whole(document, key, low, high, origins)
    low, high = port_range(document)
    if low > high:
        raise _wrong("port_range_low", f"must not be above port_range_high ({high})", low, origins)
    limits = {
        field: value
        for key, (field, least, most) in _POOL.items()
        if (value := _whole(document, key, least, most, origins)) is not None
    }
    return GlobalSettings(
        pool=Pool(**limits),
        server_spinup_timeout_seconds=_timeout(document, "server_spinup_timeout_seconds", origins),
        model_endpoint_readiness_timeout_seconds=_timeout(
            document, "model_endpoint_readiness_timeout_seconds", origins
        ),
        show_access_log=document.get("uvicorn_logging_show_200_ok") is True,
        verbose=document.get("verbose") is True,
    )


def port_range(document: Mapping[str, Any]) -> tuple[int, int]:
    low, high = document.get("port_range_low"), document.get("port_range_high")
    return (PORT_RANGE[0] if low is None else low, PORT_RANGE[1] if high is None else high)


def fill_folders(document: dict[str, Any], cwd: Path, origins: Origins) -> None:
    """`results_dir` and `cache_dir`, absolute."""
    for key, default in (("results_dir", "results"), ("cache_dir", "cache")):
        value = document.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise _wrong(key, "must be a folder", value, origins)
        document[key] = str(cwd / Path(value or default).expanduser())


def fill_skip_verification(document: Mapping[str, Any], agents: list[dict[str, Any]]) -> None:
    """The top-level switches are copied into each agent block that lacks them (CONTRACT 1.13)."""
    for key in ("skip_verification", "skip_verification_reward"):
        if document.get(key) is not None:
            for block in agents:
                block.setdefault(key, document[key])


def _timeout(document: Mapping[str, Any], key: str, origins: Origins) -> float | None:
    """Seconds; zero and below: no bound (None); null: the default; text that is a number counts."""
    value = document.get(key)
    if value is None:
        return _SPINUP_SECONDS
    seconds: float | None = None
    if isinstance(value, str):
        try:
            seconds = float(value)
        except ValueError:
            seconds = None
    elif isinstance(value, Real) and not isinstance(value, bool):
        seconds = float(value)
    if seconds is None or not math.isfinite(seconds):
        raise _wrong(key, "must be a number of seconds", value, origins)
    return seconds if seconds > 0 else None


def _whole(
    document: Mapping[str, Any], key: str, least: int, most: int | None, origins: Origins
) -> int | None:
    value = document.get(key)
    if value is None:
        return None
    if not is_whole(value) or value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise _wrong(key, f"must be a whole number, {bounds}", value, origins)
    return value


def _wrong(key: str, rule: str, value: object, origins: Origins) -> ConfigError:
    return ConfigError(f"`{key}` {rule}, got `{value}`", where=origins.where(key))
