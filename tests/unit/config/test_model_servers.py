"""Blocks as NeMo Gym's own model configs write them (CONTRACT 13), checked against our classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gymctl.errors import ConfigError
from gymctl.servers.models.openai_endpoint import OpenAIEndpointConfig

IMAGES = Path(__file__).resolve().parents[3] / "server_images/responses_api_models"
BUILT_IN = sorted(path.parent.name for path in IMAGES.glob("*/app.py"))
ENV = "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-test-0001\npolicy_model_name: m\n"
OPENAI = {
    "openai_base_url": "${policy_base_url}",
    "openai_api_key": "${policy_api_key}",
    "openai_model": "${policy_model_name}",
    "extra_body": {},
    "openai_default_headers": {},
    "max_http_attempts": 3,
    "max_concurrent_requests": None,
    "drop_input_reasoning_items": "${oc.env:POLICY_DROP_REASONING_ITEMS,false}",
}
HOSTED = {
    "base_url": "${policy_base_url}",
    "api_key": "${policy_api_key}",
    "model": "${policy_model_name}",
    "uses_reasoning_parser": False,
}
AZURE = {"default_query": {"api-version": "2024-10-21"}, "num_concurrent_requests": 8}
VLLM = {
    **HOSTED,
    "return_token_id_information": False,
    "request_prompt_and_generation_token_ids": False,
    "propagate_context_overflow_errors": False,
    "uses_interleaved_reasoning": True,
    "reasoning_field": "both",
    "preserve_reasoning_in_assistant_content": False,
    "replace_developer_role_with_system": False,
    "sequential_reasoning_allowed": True,
    "is_responses_native": False,
    "chat_template_kwargs": None,
    "forward_request_chat_template_kwargs": False,
    "continue_final_assistant_message": False,
    "extra_body": None,
    "sampling_overrides": None,
    "default_headers": {},
    "audio_root": None,
    "use_completions_api": False,
    "render_chat_template": False,
    "tokenizer": None,
    "supply_prefix_token_ids": False,
    "endpoint_file": None,
    "endpoint_stale_grace_s": 300.0,
    "endpoint_connection_retries": 8,
    "endpoint_check_interval_s": 10.0,
    "forward_session_id_as_conversation_id": False,
}
BLOCKS = {
    "openai_model": OPENAI,
    "litellm_model": OPENAI,
    "azure_openai_model": {**dict(list(OPENAI.items())[:3]), **AZURE},
    "inference_provider": {**HOSTED, "num_concurrent_requests": 1000, "extra_body": {}},
    "vllm_model": VLLM,
}
CAPTURE = {"token_id_capture_non_generating_requests": [{"method": "POST", "path": "/tokenize"}]}


@pytest.fixture
def bench(make_bench, tmp_path):
    """A folder without servers of its own: the built-in ones are found."""
    made = make_bench(tmp_path)
    made.write("env.yaml", ENV)
    return made


def load(bench, implementation: str, block: dict[str, object]):
    models = {implementation: {"entrypoint": "app.py", **block}}
    bench.write("model.yaml", yaml.safe_dump({"policy_model": {"responses_api_models": models}}))
    return bench.load("model.yaml")


@pytest.mark.parametrize("implementation", BLOCKS)
def test_13_1_every_field_of_the_catalogue_is_known(bench, implementation) -> None:
    config = load(bench, implementation, BLOCKS[implementation])
    assert not config.warnings
    assert BLOCKS[implementation].keys() <= config.servers["policy_model"].settings.keys()


def test_13_3_the_policy_may_be_served_by_several_replicas(bench) -> None:
    urls = ["http://127.0.0.1:8001/v1", "http://127.0.0.1:8002/v1"]
    bench.write("env.yaml", ENV.replace("http://127.0.0.1:9/v1", str(urls)))
    config = load(bench, "vllm_model", {**VLLM, "base_url": "${policy_base_url}"})
    assert config.servers["policy_model"].settings["base_url"] == urls
    bench.write("env.yaml", ENV.replace("http://127.0.0.1:9/v1", "[8002]"))
    with pytest.raises(ConfigError, match="`policy_base_url` must be text, or a list of texts"):
        load(bench, "vllm_model", {**VLLM, "base_url": "${policy_base_url}"})


@pytest.mark.parametrize("implementation", BUILT_IN)
def test_13_every_model_server_takes_requests_that_generate_nothing(bench, implementation) -> None:
    config = load(bench, implementation, {**BLOCKS.get(implementation, {}), **CAPTURE})
    (warning,) = config.warnings
    assert "`policy_model.token_id_capture_non_generating_requests` has no effect" in warning


@pytest.mark.parametrize("implementation", BLOCKS)
def test_a_key_that_no_model_server_has_is_still_refused(bench, implementation) -> None:
    with pytest.raises(ConfigError, match=f"{implementation} does not know `max_http_atempts`"):
        load(bench, implementation, {**BLOCKS[implementation], "max_http_atempts": 2})


@pytest.mark.parametrize("implementation", ["openai_model", "litellm_model"])
def test_13_1_what_the_environment_says_of_reasoning_items_is_checked(
    bench, monkeypatch, implementation
) -> None:
    monkeypatch.setenv("POLICY_DROP_REASONING_ITEMS", "true")
    load(bench, implementation, OPENAI)
    monkeypatch.setenv("POLICY_DROP_REASONING_ITEMS", "perhaps")
    with pytest.raises(
        ConfigError, match="`drop_input_reasoning_items` must be true or false, got 'perhaps'"
    ):
        load(bench, implementation, OPENAI)


@pytest.mark.parametrize(("said", "is_dropped"), [(None, False), ("true", True), ("1", True), ("no", False)])
def test_13_1_the_shipped_config_of_openai_model_asks_the_environment(
    bench, monkeypatch, said, is_dropped
) -> None:
    if said is None:
        monkeypatch.delenv("POLICY_DROP_REASONING_ITEMS", raising=False)
    else:
        monkeypatch.setenv("POLICY_DROP_REASONING_ITEMS", said)
    bench.write("model.yaml", (IMAGES / "openai_model/configs/openai_model.yaml").read_text())
    block = bench.load("model.yaml").servers["policy_model"].settings
    settings = OpenAIEndpointConfig.model_validate({**block, "name": "policy_model"})
    assert settings.drop_input_reasoning_items is is_dropped
