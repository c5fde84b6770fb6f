"""A folder with server folders and config files, and a short way to load them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymctl.config.load import load
from gymctl.config.model import Config
from gymctl.config.sources import Selection

SERVERS = (
    "responses_api_models/vllm_model",
    "resources_servers/weather_tool",
    "responses_api_agents/simple_agent",
    "environment_servers/legacy_agent",
    "environment_servers/single_agent_turn",
)

MODEL = """\
policy_model:
  responses_api_models:
    vllm_model: {entrypoint: app.py, base_url: "${policy_base_url}", api_key: "${policy_api_key}"}
"""
WEATHER = """\
weather:
  resources_servers:
    weather_tool: {entrypoint: app.py, domain: agent}
weather_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: weather}
      model_server: {type: responses_api_models, name: policy_model}
"""
ENV = "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-test-0001\n"
ONE_SERVER = "weather: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n"


@dataclass(frozen=True)
class Workbench:
    """`write` makes a file, `load` reads the configuration that a command in this folder would read."""

    folder: Path

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, *config: str, environ: dict[str, str] | None = None, **named: Any) -> Config:
        return load(Selection(config=config, **named), cwd=self.folder, environ=environ or {})

    def document(self, *config: str, **named: Any) -> dict[str, Any]:
        """The document of files that need no server of their own."""
        self.write("one_server.yaml", ONE_SERVER)
        return dict(self.load("one_server.yaml", *config, **named).document)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    for server in SERVERS:
        folder = tmp_path / server
        folder.mkdir(parents=True)
        (folder / "app.py").touch()
        (folder / "requirements.txt").touch()
    return Workbench(tmp_path)


@pytest.fixture
def stack(bench: Workbench) -> Workbench:
    """model.yaml and weather.yaml with an env.yaml that completes them."""
    bench.write("model.yaml", MODEL)
    bench.write("weather.yaml", WEATHER)
    bench.write("env.yaml", ENV)
    return bench


@pytest.fixture
def make_bench() -> Callable[[Path], Workbench]:
    return Workbench
