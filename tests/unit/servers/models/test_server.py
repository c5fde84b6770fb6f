"""A model server implements one of the two dialects."""

from __future__ import annotations

import pytest

from gymctl.contract.part import ServerPart
from gymctl.servers import ModelServer

PART = ServerPart(
    project="p",
    name="policy_model",
    kind="responses_api_models",
    implementation="mine",
    settings={},
    session_secret="s",
)


def test_a_class_that_implements_neither_dialect_is_refused_at_its_start():
    class Neither(ModelServer):
        pass

    with pytest.raises(TypeError, match="neither"):
        Neither.app().build(PART)


def test_a_class_that_implements_one_has_the_routes_of_both():
    class Mine(ModelServer):
        async def chat(self, params: dict) -> dict:
            return params

    paths = {getattr(route, "path", "") for route in Mine.app().build(PART).router.routes}
    assert {"/v1/responses", "/v1/chat/completions", "/gymctl/upstream"} <= paths
