"""A config of four servers, as loading would give it, with its ports found and a secret in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymctl.config.model import Config, GlobalSettings, Reference, ServerBlock

SECRET = "sk-planted-$ecret-4711"


def reference(field: str, kind: Any, name: str) -> Reference:
    return Reference(field=field, kind=kind, name=name)


def block(
    name: str, kind: Any, implementation: str, port: int, *calls: Reference, **settings: Any
) -> ServerBlock:
    references = {call.field: {"type": call.kind, "name": call.name} for call in calls}
    return ServerBlock(
        name=name,
        kind=kind,
        implementation=implementation,
        entrypoint="app.py",
        folder=Path("/srv/images") / kind / implementation,
        settings={"entrypoint": "app.py", **references, **settings, "host": "127.0.0.1", "port": port},
        calls=calls,
        host="127.0.0.1",
        port=port,
        is_port_explicit=False,
    )


def config_of(*blocks: ServerBlock, **document: Any) -> Config:
    servers = {one.name: one for one in blocks}
    levels = {one.name: {one.kind: {one.implementation: dict(one.settings)}} for one in blocks}
    return Config(
        project="weather-1a2b",
        servers=servers,
        head_host="127.0.0.1",
        head_port=11000,
        document={**levels, "policy_api_key": SECRET, **document},
        settings=GlobalSettings(),
        datasets=(),
        files=(),
        search_roots=(),
        origins={},
        secrets=frozenset({SECRET}),
    )


@pytest.fixture
def config() -> Config:
    agent = ("responses_api_agents", "weather_agent")
    return config_of(
        block("weather", "resources_servers", "weather", 15011, domain="agent"),
        block(
            "policy_model",
            "responses_api_models",
            "openai_model",
            15012,
            openai_base_url="http://localhost:9009/v1",
            openai_api_key=SECRET,
        ),
        block(
            "weather_agent",
            "responses_api_agents",
            "simple_agent",
            15013,
            reference("resources_server", "resources_servers", "weather"),
            reference("model_server", "responses_api_models", "policy_model"),
            greeting="costs $5, not ${five}",
        ),
        block(
            "weather_environment_server",
            "environment_servers",
            "legacy_agent",
            15014,
            reference("agent_server", *agent),
        ),
    )
