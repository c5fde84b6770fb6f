"""Blocks of resources servers: sessions and their limits, tools over MCP, a judge."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gymctl.servers.stack.base import ServerConfig
from gymctl.servers.stack.client import ServerRef


class ResourcesConfig(ServerConfig):
    """Block of a resources server."""

    domain: str | None = None
    max_sessions: int = Field(default=131072, ge=1)
    session_idle_seconds: float = Field(default=21600, gt=0)
    """As long as an episode may last: a slow model must not lose its session."""
    expose_tools_over_mcp: bool = False


class JudgeConfig(ResourcesConfig):
    """Block of a resources server whose `verify` asks a model."""

    judge_model_server: ServerRef
    judge_responses_create_params: dict[str, Any] = Field(default_factory=dict)
    """Sent with every question: temperature, output limit, instructions."""
    judge_max_concurrency: int = Field(default=64, ge=1)
    """Questions in flight at once; more of them wait."""
    judge_timeout_seconds: float = Field(default=600, gt=0)
    """For one question, from the moment it is sent; then the judge counts as failed."""
