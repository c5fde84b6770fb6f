"""Model server for hosted inference providers that speak chat completions."""

from __future__ import annotations

from pydantic import Field, SecretStr

from gymctl.contract.part import ServerPart
from gymctl.servers.models.chat_endpoint import ChatEndpoint
from gymctl.servers.models.dialects.chat_to_responses import ReasoningRule
from gymctl.servers.models.upstream import Upstream
from gymctl.servers.models.upstream_config import UpstreamConfig


class InferenceProviderConfig(UpstreamConfig):
    base_url: str
    api_key: SecretStr
    model: str
    uses_reasoning_parser: bool = False
    """Make reasoning items of what the provider sends apart and of think blocks in the text."""
    num_concurrent_requests: int = Field(default=1000, ge=1)
    """Further requests wait."""


class InferenceProvider(ChatEndpoint):
    config: InferenceProviderConfig

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        config = self.config
        self.model = config.model
        self.upstream = Upstream(
            self.client.transport,
            config.base_url,
            api_key=config.api_key.get_secret_value(),
            max_attempts=config.max_http_attempts,
            unreachable_seconds=config.upstream_unreachable_seconds,
            max_concurrent=config.num_concurrent_requests,
            proxy=config.upstream_proxy,
            setting="base_url",
        )

    @property
    def reasoning_rule(self) -> ReasoningRule:
        return "parse" if self.config.uses_reasoning_parser else "ignore"


app = InferenceProvider.app()
