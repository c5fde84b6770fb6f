"""The SDK inside a container: one base class per kind, head, client, session."""

from gymctl.contract.stepping import Reset, Step
from gymctl.servers.agent import AgentConfig, AgentServer, Turn, direct_access
from gymctl.servers.agent_sessions import AgentSession, ToolAccess
from gymctl.servers.base import Server, ServerConfig
from gymctl.servers.client import InnerServerError, ServerClient, ServerRef, checked
from gymctl.servers.environment import AgentRef, EnvironmentConfig, EnvironmentServer, Episode, EpisodeFailed
from gymctl.servers.gymnasium import GymnasiumServer, StepRequest
from gymctl.servers.gymnasium_env import EnvConfig, EnvRow, EnvServer, InvalidAction
from gymctl.servers.handlers import tool
from gymctl.servers.judge import Judge, JudgeFailed
from gymctl.servers.model import ModelServer
from gymctl.servers.model_calls import ask, conversation_of
from gymctl.servers.params import completed
from gymctl.servers.resources import ResourcesServer
from gymctl.servers.resources_config import JudgeConfig, ResourcesConfig
from gymctl.servers.single_turn import SingleTurnConfig, SingleTurnServer
from gymctl.servers.state import SessionState
from gymctl.servers.verdicts import MultiRewardResponse, VerifyRequest, VerifyResponse
from gymctl.servers.wire import Json, invalid, json_object, validated
from gymctl.transport import Answer, TransportError

__all__ = [
    "AgentConfig",
    "AgentRef",
    "AgentServer",
    "AgentSession",
    "Answer",
    "EnvConfig",
    "EnvRow",
    "EnvServer",
    "EnvironmentConfig",
    "EnvironmentServer",
    "Episode",
    "EpisodeFailed",
    "GymnasiumServer",
    "InnerServerError",
    "InvalidAction",
    "Json",
    "Judge",
    "JudgeConfig",
    "JudgeFailed",
    "ModelServer",
    "MultiRewardResponse",
    "Reset",
    "ResourcesConfig",
    "ResourcesServer",
    "Server",
    "ServerClient",
    "ServerConfig",
    "ServerRef",
    "SessionState",
    "SingleTurnConfig",
    "SingleTurnServer",
    "Step",
    "StepRequest",
    "ToolAccess",
    "TransportError",
    "Turn",
    "VerifyRequest",
    "VerifyResponse",
    "ask",
    "checked",
    "completed",
    "conversation_of",
    "direct_access",
    "invalid",
    "json_object",
    "tool",
    "validated",
]
