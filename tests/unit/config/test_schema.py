"""The schema for editors: our own configs fit it, and slips do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from omegaconf import OmegaConf

from gymctl.config.reading.roots import SearchRoots
from gymctl.config.telling.schema import schema

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted([*ROOT.glob("benchmarks/**/*.yaml"), *ROOT.glob("server_images/**/configs/*.yaml")])


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return schema(SearchRoots.of(ROOT, {}))


@pytest.fixture(scope="module")
def validator(made) -> Draft202012Validator:
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def block(kind: str, implementation: str, text: str) -> dict[str, Any]:
    return {"it": {kind: {implementation: yaml.safe_load(text)}}}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_config_of_ours_fits(path: Path, validator: Draft202012Validator) -> None:
    document = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    assert [error.message for error in validator.iter_errors(document)] == []


@pytest.mark.parametrize(
    "text",
    [
        "{max_steps: 3}",
        "{max_steps: '???', model_server: {type: responses_api_models, name: '${judge}'}}",
        "{max_steps: '${steps}', execute_tools: '${oc.env:TOOLS,true}', datasets: '${copy:a.b}'}",
        "{_inherit_from: other.place, _delete_key: 'a, b'}",
        "{entrypoint: app.py, resources: {memory: 1g}, mounts: [/data], num_workers: 2, verified: false}",
        "{datasets: [{name: a, type: example, jsonl_fpath: a.jsonl, license: mine}]}",
    ],
)
def test_parts_references_and_directives_fit(text: str, validator: Draft202012Validator) -> None:
    assert validator.is_valid(block("responses_api_agents", "simple_agent", text))


@pytest.mark.parametrize(
    "text",
    [
        "{max_step: 3}",
        "{max_steps: many}",
        "{execute_tools: maybe}",
        "{model_server: {type: models, name: m}}",
        "{model_server: {type: responses_api_models, name: 12}}",
        "{datasets: [{name: a, type: test, jsonl_fpath: a.jsonl}]}",
        "{domain: maths}",
        "{resources: {memory: 1g}, num_workers: 0}",
    ],
)
def test_slips_do_not_fit(text: str, validator: Draft202012Validator) -> None:
    assert not validator.is_valid(block("responses_api_agents", "simple_agent", text))


def test_settings_of_any_name_fit_and_keys_of_gymctl_are_checked(validator: Draft202012Validator) -> None:
    assert validator.is_valid({"anything": 1, "settings": {"a": [1]}, "num_repeats": 3, "dry_run": True})
    assert not validator.is_valid({"dry_run": "often"})
    assert not validator.is_valid({"port_range_low": "low"})


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("port_range_low", [10001, "${low}", None], [0, 65536, "low"]),
        ("num_repeats", [1, {"a": 2, "_default": 1}, "${n}", None], [0, "many", {"a": 0}]),
        ("num_repeats_add_seed", [True, "${seed}", None], ["yes", 1]),
        ("split", ["train", None], ["example"]),
        ("fan_out", [{"a": ["b", "c"]}], [["b"], {"a": "b"}]),
        ("health_check_ignored_checks", ["a,b", ["a"]], [1]),
    ],
)
def test_top_level_keys_have_types_and_bounds(key: str, right: Any, wrong: Any, validator) -> None:
    assert [value for value in right if not validator.is_valid({key: value})] == []
    assert [value for value in wrong if validator.is_valid({key: value})] == []


def test_two_implementations_in_one_instance_do_not_fit(validator: Draft202012Validator) -> None:
    both = {"counter": {"entrypoint": "app.py"}, "weather": {"entrypoint": "app.py"}}
    assert not validator.is_valid({"it": {"resources_servers": both}})
    assert validator.is_valid({"it": {"resources_servers": {**both, "_delete_key": "weather"}}})


def test_a_server_of_another_sdk_is_described_and_stays_open(tmp_path: Path) -> None:
    folder = tmp_path / "resources_servers" / "theirs"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").touch()
    (folder / "app.py").write_text(
        "from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer\n"
        "class C(BaseResourcesServerConfig):\n    tries: int = 3\n    '''How often.'''\n"
        "class It(SimpleResourcesServer):\n    config: C\n",
        encoding="utf-8",
    )
    made = schema(SearchRoots.of(tmp_path, {}))
    told = made["$defs"]["resources_servers.theirs"]
    assert told["properties"]["tries"]["description"] == "How often."
    validator = Draft202012Validator(made)
    assert validator.is_valid(block("resources_servers", "theirs", "{tries: 2, own: 1}"))
    assert not validator.is_valid(block("resources_servers", "theirs", "{tries: often}"))


def test_descriptions_of_fields_are_in_it(made) -> None:
    told = made["$defs"]["responses_api_agents.simple_agent"]["properties"]
    assert told["max_steps"]["description"] == "Model calls per turn; null is unlimited."
    assert told["entrypoint"]["description"]
