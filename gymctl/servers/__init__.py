"""The SDK inside a container; what an author of servers imports. Each line may import the lines below it.

__main__.py, inprocess.py   a server as a process, or inside a test
load.py                     a server's part file and folder -> its app
head.py                     what clients ask first: addresses, readiness
nemo_gym_part.py            what a server of NeMo Gym's own finds in its container instead of all this
resources/                  tools, sessions with state, verifiers, judges, MCP, step-style environments
agents/                     the loop between a model and tools
environments/               who owns an episode
models/                     dialects in front, upstreams behind
stack/                      what all of them stand on; start reading at `base.py`, then `app.py`
"""

from gymctl.contract.stepping import Reset, Step
from gymctl.servers.agents.model_calls import ask, conversation_of
from gymctl.servers.agents.server import AgentConfig, AgentServer, Turn
from gymctl.servers.agents.sessions import AgentSession, ToolAccess, direct_access
from gymctl.servers.environments.server import (
    AgentRef,
    EnvironmentConfig,
    EnvironmentServer,
    Episode,
    EpisodeFailed,
)
from gymctl.servers.environments.single_turn import SingleTurnConfig, SingleTurnServer
from gymctl.servers.models.server import ModelServer
from gymctl.servers.resources.config import JudgeConfig, ResourcesConfig
from gymctl.servers.resources.gymnasium import GymnasiumServer, StepRequest
from gymctl.servers.resources.gymnasium_env import EnvConfig, EnvRow, EnvServer, InvalidAction
from gymctl.servers.resources.handlers import tool
from gymctl.servers.resources.judge import Judge, JudgeFailed
from gymctl.servers.resources.server import ResourcesServer
from gymctl.servers.resources.state import SessionState
from gymctl.servers.resources.verdicts import MultiRewardResponse, VerifyRequest, VerifyResponse
from gymctl.servers.stack.base import Server, ServerConfig
from gymctl.servers.stack.client import InnerServerError, ServerClient, ServerRef, checked
from gymctl.servers.stack.params import completed
from gymctl.servers.stack.wire import Json, invalid, json_object, validated
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
