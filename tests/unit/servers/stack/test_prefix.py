"""`/ng-rollout/<id>`: what each kind of server takes off its paths (CONTRACT 3.3)."""

from __future__ import annotations

import pytest

from gymctl.servers.stack.prefix import PREFIX_KEY, PrefixRule, RolloutPrefix
from gymctl.transport import ROLLOUT


async def routed(
    rule: PrefixRule, path: str, headers: list | None = None
) -> tuple[str, str | None, str | None]:
    """Path, prefix and rollout as the app behind the layer sees them."""
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["path"], scope.get(PREFIX_KEY), ROLLOUT.get()))

    ROLLOUT.set(None)
    await RolloutPrefix(app, rule)({"type": "http", "path": path, "headers": headers or []}, None, None)  # type: ignore[arg-type]
    return seen[0]


CAPTURE = "/ng-rollout/x/training-token-capture"


@pytest.mark.parametrize(
    ("rule", "path", "expected"),
    [
        (
            PrefixRule.ANY_PATH,
            "/ng-rollout/3-0-a1/get_weather",
            ("/get_weather", "/ng-rollout/3-0-a1", "3-0-a1"),
        ),
        (PrefixRule.ANY_PATH, "/ng-rollout/-x/verify", ("/ng-rollout/-x/verify", None, None)),
        (PrefixRule.ANY_PATH, "/ng-rollout/x", ("/ng-rollout/x", None, None)),
        (PrefixRule.ANY_PATH, "/verify", ("/verify", None, None)),
        (PrefixRule.ANY_PATH_AND_CAPTURE, f"{CAPTURE}/v1/responses", ("/v1/responses", CAPTURE, "x")),
        (PrefixRule.ANY_PATH_AND_CAPTURE, "/ng-rollout/a b!/v1/x", ("/v1/x", "/ng-rollout/a b!", "a b!")),
        (PrefixRule.RESPONSES_ONLY, f"{CAPTURE}/v1/responses", ("/v1/responses", CAPTURE, "x")),
        (PrefixRule.RESPONSES_ONLY, "/ng-rollout/x/run", ("/ng-rollout/x/run", None, None)),
        (PrefixRule.NONE, "/ng-rollout/x/run", ("/ng-rollout/x/run", None, None)),
    ],
)
async def test_prefix_by_kind(rule, path, expected):
    assert await routed(rule, path) == expected


async def test_the_rollout_may_come_as_a_header():
    headers = [(b"x-gymctl-rollout", b"5-1")]
    assert await routed(PrefixRule.NONE, "/run", headers) == ("/run", None, "5-1")
