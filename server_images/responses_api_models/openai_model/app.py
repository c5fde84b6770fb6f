"""Model server for any OpenAI-compatible endpoint that speaks Responses or chat completions."""

from __future__ import annotations

from gymctl.servers.models.openai_endpoint import OpenAIEndpoint


class OpenAIModel(OpenAIEndpoint):
    """Answers come back as the bytes that the upstream sent."""


app = OpenAIModel.app()
