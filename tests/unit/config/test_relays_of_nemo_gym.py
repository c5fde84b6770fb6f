"""NeMo Gym's relays are ours, unless its own are asked for; any other server of its is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.config.load import load
from gymctl.config.model import Config
from gymctl.config.sources import Selection
from gymctl.paths import bundled

CONFIG = """\
bandit: {environment_servers: {NAME: {entrypoint: app.py, agent_server: AGENT, FIELDS}}}
robber:
  responses_api_agents:
    simple_agent: {entrypoint: app.py, resources_server: TOOLS, model_server: MODEL}
tools: {resources_servers: {mine: {entrypoint: app.py, domain: agent}}}
policy_model: {responses_api_models: {mine: {entrypoint: app.py}}}
"""
REFERENCES = {
    "AGENT": "{type: responses_api_agents, name: robber}",
    "TOOLS": "{type: resources_servers, name: tools}",
    "MODEL": "{type: responses_api_models, name: policy_model}",
}
RELAYS = ("legacy_agent", "single_agent_turn", "single_agent_turn_legacy")


def loaded(folder: Path, relay: str, *overrides: str, requirements: str = "nemo-gym\n") -> Config:
    turn = "resources_server: TOOLS, cleanup_timeout_seconds: 5"
    text = CONFIG.replace("NAME", relay).replace(", FIELDS", f", {turn}" if relay in RELAYS[1:] else "")
    for name, reference in REFERENCES.items():
        text = text.replace(name, reference)
    (folder / "config.yaml").write_text(text)
    servers = ("resources_servers/mine", "responses_api_models/mine", "responses_api_agents/simple_agent")
    for place in (*servers, f"environment_servers/{relay}"):
        made = folder / place
        made.mkdir(parents=True, exist_ok=True)
        (made / "app.py").write_text("")
        (made / "requirements.txt").write_text(requirements)
    return load(Selection(config=("config.yaml",), overrides=overrides), cwd=folder, environ={})


@pytest.mark.parametrize("relay", RELAYS)
def test_ours_stand_in_for_nemo_gyms_relays(tmp_path: Path, relay: str) -> None:
    servers = loaded(tmp_path, relay).servers

    assert servers["bandit"].folder == bundled() / "server_images" / "environment_servers" / relay
    assert servers["bandit"].family == "gymctl"
    assert not servers["bandit"].uses_ray
    assert servers["robber"].folder == tmp_path / "responses_api_agents" / "simple_agent"
    assert servers["robber"].family == "nemo_gym"


@pytest.mark.parametrize("relay", RELAYS)
def test_nemo_gyms_own_can_be_asked_for(tmp_path: Path, relay: str) -> None:
    block = loaded(tmp_path, relay, "++nemo_gym_relays=true").servers["bandit"]

    assert block.folder == tmp_path / "environment_servers" / relay
    assert block.family == "nemo_gym"


def test_an_environment_server_that_we_have_not_is_nemo_gyms(tmp_path: Path) -> None:
    assert loaded(tmp_path, "nemo_user_sim").servers["bandit"].family == "nemo_gym"


def test_a_users_own_relay_on_our_sdk_is_the_users(tmp_path: Path) -> None:
    block = loaded(tmp_path, "legacy_agent", requirements="").servers["bandit"]

    assert block.folder == tmp_path / "environment_servers" / "legacy_agent"
