"""What an episode's failure is called, from the call that failed and the stage (CONTRACT 7.4)."""

from __future__ import annotations

import pytest

from gymctl.servers.environments.single_turn import failure_kind

PROVIDER = "policy_model/api.example.com/v1/responses"


@pytest.mark.parametrize(
    ("call", "stage", "kind"),
    [
        (f"{PROVIDER} 429", "agent", "provider_quota_exhausted"),
        (f"{PROVIDER} 503", "agent", "provider_unavailable"),
        (f"{PROVIDER} 529", "agent", "provider_unavailable"),
        (f"{PROVIDER} transport_unreachable", "agent", "provider_unavailable"),
        (f"{PROVIDER} transport_timeout", "agent", None),
        (f"{PROVIDER} 400", "agent", None),
        ("policy-model:8000/v1/responses transport_unreachable", "agent", "transport_unreachable"),
        ("policy-model:8000/v1/responses 500", "agent", None),
        ("weather:8000/get_weather 500", "agent", None),
        ("weather:8000/seed_session 500", "seed", None),
        ("weather:8000/verify 500", "verification", "verifier_error"),
        ("judge-model:8000/v1/responses transport_peer_drop", "verification", "transport_peer_drop"),
        ("judge_model/api.example.com/v1/responses 429", "verification", "judge_failed"),
        (None, "agent", None),
        (None, "verification", "verifier_error"),
    ],
)
def test_the_kind_says_what_the_innermost_call_said(call: str | None, stage: str, kind: str | None) -> None:
    assert failure_kind(call, stage) == kind
