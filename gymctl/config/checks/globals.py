"""What the top-level keys amount to: checked values with defaults, and what they fill in (CONTRACT 1.14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any, cast

from pydantic import ValidationError

from gymctl.config.checks import build_keys, evaluation, observability
from gymctl.config.checks.global_keys import GlobalKeys, TokenIdCapture
from gymctl.config.checks.instances import as_port
from gymctl.config.model import GlobalSettings, RaySettings, ServerBlock
from gymctl.config.names import suggestion
from gymctl.config.problems import Problems
from gymctl.config.reading.quoting import quote_hint
from gymctl.config.tree.masking import is_secret
from gymctl.config.tree.origins import MISSING, Origins, Path, dotted
from gymctl.contract.part import HttpSettings, Pool
from gymctl.contract.pools import PoolTooSmall, divided
from gymctl.contract.proxies import refusal
from gymctl.errors import ConfigError

_FILLED_IN = (
    "use_absolute_ip",
    "port_range_low",
    "port_range_high",
    "allow_openai_version_skew",
    "skip_venv_if_present",
    "dry_run",
    "server_spinup_timeout_seconds",
    "model_endpoint_readiness_timeout_seconds",
)
"""Keys whose defaults foreign servers look for in the configuration itself."""
_FOLDERS = {"results_dir": "results", "cache_dir": "cache"}

_POOL = {
    "global_aiohttp_connector_limit": "limit",
    "global_aiohttp_connector_limit_per_host": "limit_per_host",
    "global_aiohttp_tcp_keepalive_idle_seconds": "keepalive_idle_seconds",
    "global_aiohttp_tcp_keepalive_interval_seconds": "keepalive_interval_seconds",
    "global_aiohttp_tcp_keepalive_probes": "keepalive_probes",
    "global_aiohttp_intended_concurrency": "intended",
    "global_aiohttp_intended_concurrency_per_host": "intended_per_host",
    "global_aiohttp_client_request_debug": "tells_every_failure",
}
_EXAMPLE_PROXY = "10.0.0.7, 10.1.0.0/16"
_CHECKED_ELSEWHERE = frozenset(("config_paths", "head_server", "default_host", *evaluation.KEYS))
"""Keys whose mistakes are told by those who act on them."""


def settings(document: Mapping[str, Any], origins: Origins, problems: Problems) -> GlobalSettings:
    """Checked values with defaults. Null means the default; so does a wrong value, which is reported."""
    given = {
        key: value for key, value in document.items() if key not in _CHECKED_ELSEWHERE and value is not None
    }
    try:
        keys = GlobalKeys.model_validate(given)
    except ValidationError as errors:
        for error in errors.errors(include_url=False):
            path = cast(Path, error["loc"])
            problems.add(_explained(path, error, origins), *path)
            given.pop(str(path[0]), None)
        keys = GlobalKeys.model_validate(given)
    low, high = port_range(given)
    if low > high:
        error = _wrong(("port_range_low",), f"must not be above port_range_high ({high})", low, origins)
        problems.add(error, "port_range_low")
    limits = {field: value for key, field in _POOL.items() if (value := getattr(keys, key)) is not None}
    return GlobalSettings(
        pool=Pool(**limits),
        server_spinup_timeout_seconds=_bound(keys.server_spinup_timeout_seconds),
        model_endpoint_readiness_timeout_seconds=_bound(keys.model_endpoint_readiness_timeout_seconds),
        http=_http(keys, origins, problems),
        is_head_masked=_is_head_masked(document, origins, problems),
        start_anyway=keys.start_anyway is True,
        nemo_gym_relays=keys.nemo_gym_relays is True,
        verbose=keys.verbose is True,
        is_observed=keys.observability_enabled is True,
        call_capture=observability.call_capture(keys, origins, problems),
        token_capture=observability.token_capture(keys, origins, problems),
        ray=RaySettings(
            address=keys.ray_head_node_address,
            workers=keys.ray_workers or 1,
            dashboard_port=as_port(keys.ray_dashboard_port),
        ),
        build=build_keys.settings(keys.build, origins),
    )


def _http(keys: GlobalKeys, origins: Origins, problems: Problems) -> HttpSettings:
    """How servers listen. A list of proxies is looked at only when they are believed."""
    proxies: tuple[str, ...] | None = None
    if keys.uvicorn_proxy_headers:
        proxies = tuple(keys.uvicorn_forwarded_allow_ips or ())
        reason = refusal(proxies)
        if reason is not None:
            key = "uvicorn_forwarded_allow_ips"
            where = origins.where(key) or origins.where("uvicorn_proxy_headers")
            hint = f"`uvicorn_proxy_headers: true` needs it; for example [{_EXAMPLE_PROXY}]"
            problems.add(ConfigError(f"`{key}` {reason}", where=where, hint=hint), key)
            proxies = None
    default = HttpSettings().worker_silence_seconds
    return HttpSettings(
        show_access_log=keys.uvicorn_logging_show_200_ok is True,
        trusted_proxies=proxies,
        worker_silence_seconds=keys.uvicorn_timeout_worker_healthcheck or default,
    )


def _is_head_masked(document: Mapping[str, Any], origins: Origins, problems: Problems) -> bool:
    path = ("head_server", "masked")
    head = document.get(path[0])
    value = head.get(path[1]) if isinstance(head, Mapping) else None
    if value is not None and not isinstance(value, bool):
        problems.add(_wrong(path, "must be true or false", value, origins), *path)
    if value is False:
        where = origins.where(*path) or "default"
        problems.warn(f"`{dotted(path)}` ({where}): whoever reaches the head reads all keys in clear")
    return value is not False


def check_pools(pool: Pool, blocks: Iterable[ServerBlock], origins: Origins, problems: Problems) -> None:
    """A limit that leaves a worker nothing is refused before anything starts (CONTRACT 2.6)."""
    for block in blocks:
        try:
            divided(pool, block.workers)
        except PoolTooSmall as error:
            key = next(key for key, field in _POOL.items() if field == error.field)
            where = origins.where(key) or origins.where(*block.path, "num_workers")
            hint = f"it is the budget of all workers together: {block.workers} or more, or 0 for no limit"
            problems.add(ConfigError(f"`{key}` of `{block.name}`: {error}", where=where, hint=hint))


def port_range(document: Mapping[str, Any]) -> tuple[int, int]:
    low, high = (
        GlobalKeys.model_fields[key].default if document.get(key) is None else document[key]
        for key in ("port_range_low", "port_range_high")
    )
    return low, high


def fill_defaults(merged: dict[Any, Any], cwd: FilePath) -> None:
    """What foreign servers look up without a default of their own, before `${cache_dir}` is resolved."""
    for key in _FILLED_IN:
        merged.setdefault(key, GlobalKeys.model_fields[key].default)
    for key, default in _FOLDERS.items():
        value = merged.setdefault(key, str(cwd / default))
        is_plain = isinstance(value, str) and value and value != MISSING and not value.startswith("~")
        if is_plain and "${" not in value and "\0" not in value:
            merged[key] = str((cwd / value).resolve())


def fill_folders(document: dict[str, Any], cwd: FilePath, origins: Origins, problems: Problems) -> None:
    """`results_dir` and `cache_dir`, absolute, and where foreign servers keep what uv makes."""
    for key, default in _FOLDERS.items():
        value = document.get(key)
        folder = FilePath(value if isinstance(value, str) and value else default)
        try:
            document[key] = str((cwd / folder.expanduser()).resolve())
        except RuntimeError:
            problems.add(_wrong((key,), "names a home folder that does not exist", value, origins), key)
    document.setdefault("uv_cache_dir", f"{document['cache_dir']}/uv")
    document.setdefault("uv_venv_dir", str(cwd))


def fill_skip_verification(document: Mapping[str, Any], agents: list[dict[str, Any]]) -> None:
    """The top-level switches are copied into each agent block that lacks them (CONTRACT 1.13)."""
    for key in ("skip_verification", "skip_verification_reward"):
        if document.get(key) is not None:
            for block in agents:
                block.setdefault(key, document[key])


def _bound(seconds: float | str | None) -> float | None:
    """Seconds; zero and below: no bound (None); text that is a number counts."""
    number = 600.0 if seconds is None else float(seconds)
    return number if number > 0 else None


def _explained(path: Path, error: Mapping[str, Any], origins: Origins) -> ConfigError:
    if error["type"] == "extra_forbidden":
        allowed = build_keys.allowed(path) if path[0] == "build" else TokenIdCapture.model_fields
        return ConfigError(
            f"`{dotted(path[:-1])}` does not know `{path[-1]}`",
            where=origins.where(*path),
            hint=suggestion(str(path[-1]), allowed, noun="allowed"),
        )
    rule = "must be a mapping" if error["type"] == "model_type" else error["ctx"]["error"]
    return _wrong(path, str(rule), error["input"], origins)


def _wrong(path: Path, rule: str, value: object, origins: Origins) -> ConfigError:
    is_hidden = is_secret(path[-1]) and not isinstance(value, bool)
    hint = quote_hint(path, value, origins.find(*path), is_hidden=is_hidden) if "text" in rule else None
    where = origins.where(*path)
    if path[0] == "build" and "@" in str(value):
        is_hidden = True  # a login, perhaps in a URL that is none: it is not found by its form
        where = None if where is None else str(origins.find(*path))  # and the line is not shown
    found = "" if is_hidden else f", got `{value}`"
    return ConfigError(f"`{dotted(path)}` {rule}{found}", where=where, hint=hint)
