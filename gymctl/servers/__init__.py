"""The SDK inside a container: one base class per kind, head, client, session."""

from gymctl.servers.agent import AgentConfig, AgentServer, Turn, direct_access
from gymctl.servers.agent_sessions import AgentSession, ToolAccess
from gymctl.servers.base import Server, ServerConfig
from gymctl.servers.client import InnerServerError, ServerClient, ServerRef, checked
from gymctl.servers.environment import AgentRef, EnvironmentConfig, EnvironmentServer, Episode, EpisodeFailed
from gymctl.servers.handlers import tool
from gymctl.servers.model import ModelServer
from gymctl.servers.params import completed
from gymctl.servers.resources import ResourcesConfig, ResourcesServer, VerifyRequest, VerifyResponse
from gymctl.servers.single_turn import SingleTurnConfig, SingleTurnServer
from gymctl.servers.state import SessionState
from gymctl.servers.wire import Json, invalid, json_object, validated
from gymctl.transport import Answer, TransportError

__all__ = [
    "AgentConfig",
    "AgentRef",
    "AgentServer",
    "AgentSession",
    "Answer",
    "EnvironmentConfig",
    "EnvironmentServer",
    "Episode",
    "EpisodeFailed",
    "InnerServerError",
    "Json",
    "ModelServer",
    "ResourcesConfig",
    "ResourcesServer",
    "Server",
    "ServerClient",
    "ServerConfig",
    "ServerRef",
    "SessionState",
    "SingleTurnConfig",
    "SingleTurnServer",
    "ToolAccess",
    "TransportError",
    "Turn",
    "VerifyRequest",
    "VerifyResponse",
    "checked",
    "completed",
    "direct_access",
    "invalid",
    "json_object",
    "tool",
    "validated",
]
