"""What the blocks of model servers have in common that forward to an endpoint."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from gymctl.contract.responses import JsonObject
from gymctl.servers.stack.base import ServerConfig


class UpstreamConfig(ServerConfig):
    """Extend it with the URL, the key and the model's name, under the names that the implementation has."""

    extra_body: JsonObject = Field(default_factory=dict)
    """Sent with every request; fields that the request sets win."""
    max_http_attempts: int = Field(default=3, ge=1)
    """Tries of one call in total."""
    upstream_unreachable_seconds: float = Field(default=60.0, ge=0)
    """How long it is tried to connect; from then on calls fail at once until the upstream is back."""
    upstream_proxy: str | None = None
    """The URL of an HTTP proxy on the way to the upstream, or `environment`: HTTPS_PROXY, HTTP_PROXY and
    NO_PROXY of the server's own process. By default none, whatever the environment says."""

    @field_validator("openai_api_key", "api_key", check_fields=False)
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        """A key read from a file often brings the line break along; every request would fail over it."""
        if not key.get_secret_value().isprintable():
            raise ValueError("the key holds a line break or another control character")
        if key.get_secret_value() != key.get_secret_value().rstrip():
            raise ValueError("the key ends with a blank, which no HTTP header carries")
        return key
