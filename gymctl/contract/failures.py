"""The vocabulary of failures (CONTRACT 7.4)."""

from __future__ import annotations

import re

FAILURE_KINDS = frozenset(
    {
        "transport_unreachable",
        "transport_peer_drop",
        "transport_timeout",
        "transport_local_resource",
        "agent_run_error",
        "agent_request_failed",
        "agent_timeout",
        "agent_command_not_allowed",
        "judge_failed",
        "judge_unparseable",
        "verifier_error",
        "provider_unavailable",
        "provider_quota_exhausted",
        "provider_oom_killed",
        "session_lost",
        "session_expired",
        "session_release_failed",
        "cancelled",
        "kill_shaped",
        "shutdown",
        "persistence_failed",
        "cohort_incomplete",
    }
)
REASON_LENGTH = 2000
"""Characters of a `failure_reason` at most."""

_EXTENSION = re.compile(r"[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")


def is_failure_kind(name: str) -> bool:
    """Whether a `failure_kind` is known, or of a server's own as `<server>:<kind>`."""
    return name in FAILURE_KINDS or _EXTENSION.fullmatch(name) is not None
