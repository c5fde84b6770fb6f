"""The fields that NeMo Gym's own base classes declare (CONTRACT 1.1, 7.1): what its servers inherit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ForeignBase:
    fields: Mapping[str, tuple[str, Any]]
    """Key -> annotation and, where it is plain, the type."""
    extra: Literal["ignore", "forbid"] = "ignore"


_RUN = {
    "name": ("str", str),
    "entrypoint": ("str", str),
    "host": ("str", str),
    "port": ("int", int),
    "num_workers": ("int | None", int | None),
    "domain": ("Domain | None", str | None),
}
_AGENT = {
    "session_close_retry_window_seconds": ("float", float),
    "skip_verification": ("bool", bool),
    "skip_verification_reward": ("float", float),
    "token_id_capture": ("bool", bool),
    "tool_accesses": ("list[ToolAccess]", Any),
}
_MODEL = {"token_id_capture_non_generating_requests": ("list[NonGeneratingRequest]", Any)}
_ENVIRONMENT = {
    "max_concurrent_episodes": ("int | None", int | None),
    "queue_timeout_seconds": ("float | None", float | None),
    "default_episode_timeout_seconds": ("float | None", float | None),
    "cleanup_timeout_seconds": ("float", float),
}

FOREIGN: Mapping[str, ForeignBase] = {
    "BaseServerConfig": ForeignBase({key: _RUN[key] for key in ("host", "port", "num_workers")}),
    "BaseRunServerConfig": ForeignBase({key: kind for key, kind in _RUN.items() if key != "name"}),
    "BaseRunServerInstanceConfig": ForeignBase(_RUN),
    "BaseResourcesServerConfig": ForeignBase({**_RUN, "expose_tools_over_mcp": ("bool", bool)}),
    "BaseResponsesAPIAgentConfig": ForeignBase({**_RUN, **_AGENT}),
    "BaseResponsesAPIModelConfig": ForeignBase({**_RUN, **_MODEL}),
    "BaseEnvironmentServerConfig": ForeignBase({**_RUN, **_ENVIRONMENT}, extra="forbid"),
}

WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "responses_api_models": frozenset({"token_id_capture_non_generating_requests"}),
}
"""Fields of these that a server of the same name on gymctl's SDK takes, without doing anything with them."""
