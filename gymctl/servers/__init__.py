"""The SDK inside a container: one base class per kind, head, client, session."""

from gymctl.servers.base import Server, ServerConfig
from gymctl.servers.client import InnerServerError, ServerClient, ServerRef, checked
from gymctl.servers.wire import Json, json_object, validated
from gymctl.transport import Answer, TransportError

__all__ = [
    "Answer",
    "InnerServerError",
    "Json",
    "Server",
    "ServerClient",
    "ServerConfig",
    "ServerRef",
    "TransportError",
    "checked",
    "json_object",
    "validated",
]
