"""What is said of settings that do not fit: the key and the value, but never a secret."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field, SecretStr, model_validator

from gymctl.errors import ConfigError, UsageError
from gymctl.servers import ModelServer, ServerConfig
from gymctl.servers.inprocess import make_part
from gymctl.servers.load import built


class Config(ServerConfig):
    api_key: SecretStr
    has_a: bool = False
    has_b: bool = False
    endpoints: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _not_both(self) -> Config:
        if self.has_a and self.has_b:
            raise ValueError("`has_a` does not go with `has_b`")
        return self


class Model(ModelServer):
    config: Config

    async def chat(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"has_a": True, "has_b": True}, "the block: Value error, `has_a` does not go with `has_b`"),
        ({"has_a": "perhaps"}, "`has_a`: Input should be a valid boolean"),
        ({"has_a": "perhaps"}, "got 'perhaps'"),
        (
            {"endpoints": {"authorization": "sk-secret"}},
            "`endpoints`: Input should be a valid list, got a dict",
        ),
        ({"endpoints": [{"authorization": "sk-secret"}]}, "`endpoints.0`: Input should be a valid string"),
    ],
)
def test_a_block_that_does_not_fit_is_told_without_its_secrets(settings: dict[str, Any], told: str):
    part = make_part("m", "responses_api_models", "m", {"api_key": "sk-secret", **settings})
    with pytest.raises(ConfigError) as caught:
        built(Model.app(), part)
    assert told in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://model", "https://model:443", "http://model:port"])
def test_a_neighbour_that_has_no_address_is_named(url: str):
    with pytest.raises(UsageError, match="http://host:port") as caught:
        make_part("m", "responses_api_models", "m", neighbours={"other": url})
    assert url in str(caught.value)


def test_a_neighbours_url_may_end_with_a_slash():
    part = make_part("m", "responses_api_models", "m", neighbours={"other": "http://127.0.0.1:8000/"})
    assert part.servers["other"].url == "http://127.0.0.1:8000"
