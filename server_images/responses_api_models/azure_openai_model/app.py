"""Model server for Azure OpenAI deployments."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr

from gymctl.contract.part import ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.servers.models.chat_endpoint import ChatEndpoint
from gymctl.servers.models.server import parsed
from gymctl.servers.models.upstream import Upstream
from gymctl.servers.models.upstream_config import UpstreamConfig


class AzureOpenAIModelConfig(UpstreamConfig):
    openai_base_url: str
    """The endpoint of the resource, or a URL below its `/openai` that chat completions are under."""
    openai_api_key: SecretStr
    openai_model: str
    """The name of the deployment."""
    default_query: dict[str, str]
    num_concurrent_requests: int = Field(ge=1)
    """Further requests wait."""


class AzureOpenAIModel(ChatEndpoint):
    config: AzureOpenAIModelConfig

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        config = self.config
        self.model = config.openai_model
        self.upstream = Upstream(
            self.client.transport,
            _deployment(config.openai_base_url, config.openai_model),
            api_key=config.openai_api_key.get_secret_value(),
            key_header="api-key",
            query=config.default_query,
            max_attempts=config.max_http_attempts,
            unreachable_seconds=config.upstream_unreachable_seconds,
            max_concurrent=config.num_concurrent_requests,
            proxy=config.upstream_proxy,
            setting="openai_base_url",
        )

    async def responses(self, params: JsonObject) -> JsonObject | bytes:
        """As NeMo Gym's server of this name: the Response has no usage and no status."""
        return parsed(await super().responses(params)) | {"usage": None, "status": None}


def _deployment(url: str, model: str) -> str:
    if "openai" in urlsplit(url).path.split("/"):
        return url
    return f"{url.rstrip('/')}/openai/deployments/{quote(model, safe='')}"


app = AzureOpenAIModel.app()
