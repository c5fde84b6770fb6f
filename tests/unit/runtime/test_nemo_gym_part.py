"""What NeMo Gym's own servers are told: the whole document, their own secrets, nobody else's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gymctl.config.model import Config, ServerBlock
from gymctl.contract.part import ServerPart
from gymctl.contract.servers import Address
from gymctl.runtime import nemo_gym_part, parts
from gymctl.runtime.parts import Wiring

SECRET = "sk-planted-$ecret-4711"
NETWORK = Wiring(view="network", secret=b"k" * 32)


def foreign(config: Config, *names: str, folder: Path = Path("/srv/none")) -> Config:
    changed = {name: replace(config.servers[name], family="nemo_gym", folder=folder) for name in names}
    return replace(config, servers={**config.servers, **changed})


def told(config: Config, service: str) -> dict[str, Any]:
    part = parts.build(config, NETWORK)[service]
    assert isinstance(part, ServerPart)
    assert part.document is not None
    return yaml.safe_load(part.document)


def test_ours_are_told_no_document(config: Config) -> None:
    part = parts.build(config, NETWORK)["weather"]

    assert isinstance(part, ServerPart)
    assert part.document is None


def test_it_listens_everywhere_and_dials_network_names(config: Config) -> None:
    document = told(foreign(config, "weather_agent"), "weather-agent")

    own = document["weather_agent"]["responses_api_agents"]["simple_agent"]
    assert (own["host"], own["port"]) == ("0.0.0.0", 8000)
    other = document["weather"]["resources_servers"]["weather"]
    assert (other["host"], other["port"]) == ("weather", 8000)
    assert document["head_server"] == {"host": "head", "port": 11000}
    assert document["dry_run"] is False


def test_the_global_endpoint_is_dialled_through_the_gateway(config: Config) -> None:
    config = replace(config, document={**config.document, "policy_base_url": "http://localhost:9009/v1"})

    assert (
        told(foreign(config, "weather"), "weather")["policy_base_url"]
        == "http://host.docker.internal:9009/v1"
    )


def test_a_secret_reaches_only_the_server_whose_block_holds_it(config: Config) -> None:
    config = foreign(config, "weather", "policy_model")

    mine = told(config, "policy-model")["policy_model"]["responses_api_models"]["openai_model"]
    assert mine["openai_api_key"] == SECRET
    others = parts.build(config, NETWORK)["weather"]
    assert SECRET not in parts.dump(others)


def test_a_key_that_the_code_spells_out_is_told(config: Config, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ask.py").write_text('key = get_global_config_dict()["policy_api_key"]\n')

    assert told(foreign(config, "weather", folder=tmp_path), "weather")["policy_api_key"] == SECRET
    (tmp_path / "lib" / "ask.py").write_text("# the policy_api_key is nobody's business\n")
    library = tmp_path / ".venv" / "lib"
    library.mkdir(parents=True)
    (library / "hub.py").write_text('get("policy_api_key")\n')
    assert told(foreign(config, "weather", folder=tmp_path), "weather")["policy_api_key"] == "****"


def test_an_entry_that_the_block_names_is_told(config: Config) -> None:
    box = {"provider": "daytona", "api_key": "sk-of-the-sandbox-1"}
    config = replace(
        config, document={**config.document, "box": box}, secrets=config.secrets | {box["api_key"]}
    )
    block = config.servers["weather"]
    named = replace(block, settings={**block.settings, "sandbox": {"use": "box"}})

    assert told(foreign(config, "weather"), "weather")["box"] == {"provider": "daytona", "api_key": "****"}
    config = replace(config, servers={**config.servers, "weather": named})
    assert told(foreign(config, "weather"), "weather")["box"] == box


def test_a_server_whose_name_a_block_holds_keeps_its_secrets(config: Config) -> None:
    block = config.servers["weather"]
    named = replace(block, settings={**block.settings, "model_label": "policy_model"})
    config = replace(config, servers={**config.servers, "weather": named})

    told_of = told(foreign(config, "weather"), "weather")["policy_model"]["responses_api_models"]
    assert told_of["openai_model"]["openai_api_key"] == "****"


@pytest.mark.parametrize(
    ("code", "tells_token", "tells_other"),
    [
        ("get_hf_token()", True, False),
        ("config[HF_TOKEN_KEY_NAME]", True, False),
        ("from nemo_gym.gitlab_utils import download", False, True),
        ("import datasets", False, False),
    ],
)
def test_a_prepare_script_is_told_the_secrets_that_it_names(
    code: str, tells_token: bool, tells_other: bool
) -> None:
    document = {"hf_token": "hf_planted_1", "mlflow_tracking_token": "glpat-planted", "size": 3}
    told = yaml.safe_load(nemo_gym_part.script_text(document, code, frozenset(map(str, document.values()))))

    assert told["size"] == 3
    assert (told["hf_token"] == "hf_planted_1") is tells_token
    assert (told["mlflow_tracking_token"] == "glpat-planted") is tells_other


@given(text=st.text(st.sampled_from("a{}$\\ :'\"\n"), max_size=12))
def test_omegaconf_reads_every_text_back(text: str) -> None:
    block = ServerBlock(
        *("w", "resources_servers", "w", "app.py", Path("/srv/none"), {}, (), "127.0.0.1", 1, False)
    )
    document = {"w": {"resources_servers": {"w": {"prompt": text}}}}
    address = Address(kind="resources_servers", implementation="w", host="0.0.0.0", port=8000)

    read = OmegaConf.create(nemo_gym_part.text(document, block, address, frozenset()))

    assert read["w"]["resources_servers"]["w"]["prompt"] == text


@pytest.mark.parametrize("value", ["${oc.env:HOME}", "\\${a}", "$${b}", "cost: ${c"])
def test_what_looks_like_a_reference_stays_text(value: str) -> None:
    test_omegaconf_reads_every_text_back.hypothesis.inner_test(value)  # type: ignore[attr-defined]
