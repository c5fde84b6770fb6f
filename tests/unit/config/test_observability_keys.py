"""The keys of CONTRACT 15.1 and 15.3: checked, told to servers that act on them, mounted for containers."""

from __future__ import annotations

import pytest

from gymctl.compose.mounts import captures
from gymctl.contract.part import Capture
from gymctl.errors import ConfigError, ConfigErrors, PrerequisiteError
from gymctl.runtime import parts, preflight

MODEL = """\
policy_model:
  responses_api_models:
    openai_model: {entrypoint: app.py, openai_base_url: x, openai_api_key: x, openai_model: x}
"""
AGENTS = """\
weather: {resources_servers: {weather: {entrypoint: app.py, domain: agent}}}
desk:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: weather}
      model_server: {type: responses_api_models, name: policy_model}
      token_id_capture: %s
"""
ONE = "weather: {resources_servers: {weather_tool: {entrypoint: app.py, domain: agent}}}\n"
WIRING = parts.Wiring(view="host", secret=b"k" * 32, head_network_port=20001)
OBSERVED = "observability_enabled: true\nmodel_call_capture_dir: /data/calls\n"


@pytest.fixture
def built_in(make_bench, tmp_path):
    """A folder without servers of its own: the built-in ones are found."""
    return make_bench(tmp_path)


def test_15_1_only_model_servers_are_told_where(built_in) -> None:
    built_in.write("a.yaml", MODEL + AGENTS % "false" + OBSERVED)
    config = built_in.load("a.yaml")
    assert config.settings.capture_folders == ("/data/calls",)
    told = parts.build(config, WIRING)
    assert told["policy-model"].capture == Capture(calls="/data/calls")
    assert {part.capture for name, part in told.items() if name not in ("policy-model", "head")} == {
        Capture()
    }


def test_15_1_off_means_nothing_is_told_whatever_folder_is_named(built_in) -> None:
    built_in.write("a.yaml", MODEL + AGENTS % "true" + "model_call_capture_dir: /data/calls\n")
    config = built_in.load("a.yaml")
    assert config.settings.capture_folders == ()
    assert {part.capture for name, part in parts.build(config, WIRING).items() if name != "head"} == {
        Capture()
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("observability_enabled: true", "`observability_enabled: true` needs `model_call_capture_dir`"),
        ("observability_enabled: true\nmodel_call_capture_dir: calls", "must be an absolute path"),
        ("token_id_capture: {enabled: true}", "`token_id_capture.enabled` needs `dir`"),
        ("token_id_capture: {enabled: true, dir: /d, sink: 'a:B'}", "`token_id_capture.sink` needs a `lin"),
        ("token_id_capture: {enabled: true, dir: /d, delta_records: true}", "is not supported by gymctl"),
        ("token_id_capture: {enabled: true, dir: /d, lineage_store: 'a:B'}", "is not supported by gymctl"),
        ("token_id_capture: {enabled: true, dir: /d, external_staging: true}", "needs `rebuild_response: f"),
        ("token_id_capture: {external_staging: true}", "`token_id_capture.external_staging` needs `enabled"),
        ("token_id_capture: {enabled: true, dir: /d, max_mask_fraction: 2}", "a share from 0 to 1, got `2`"),
    ],
)
def test_15_keys_that_do_not_go_together_are_told_with_their_line(bench, text, what) -> None:
    bench.write("a.yaml", text + "\n")
    with pytest.raises((ConfigError, ConfigErrors)) as caught:
        bench.document("a.yaml")
    assert what in str(caught.value)
    assert "a.yaml:" in str(getattr(caught.value, "where", None) or caught.value)


@pytest.mark.parametrize(
    ("own", "all_agents", "agents"), [(True, False, ("desk",)), (False, True, ("desk",))]
)
def test_15_3_agents_that_take_part_are_told_to_whoever_calls_for_them(built_in, own, all_agents, agents):
    capture = (
        f"token_id_capture: {{enabled: true, dir: /data/tokens, all_agents: {str(all_agents).lower()}}}\n"
    )
    built_in.write("a.yaml", MODEL + AGENTS % str(own).lower() + capture)
    told = parts.build(built_in.load("a.yaml"), WIRING)
    assert told["policy-model"].capture == Capture(tokens="/data/tokens")
    assert told["desk"].capture.token_agents == agents
    assert told["desk-environment-server"].capture.token_agents == agents
    assert told["weather"].capture == Capture()


def test_15_1_the_folder_is_mounted_writable_at_its_own_place() -> None:
    (mount,) = captures(["/data/calls"])
    assert (mount.source, mount.target, mount.read_only) == ("/data/calls", "/data/calls", False)
    for taken in ("/", "/etc", "/data/../etc"):
        with pytest.raises(ConfigError, match="cannot be recorded"):
            captures([taken])


def test_15_1_the_folder_is_made_before_anything_starts_and_must_be_writable(bench, tmp_path) -> None:
    """B46: a folder that an engine makes belongs to root."""
    folder = tmp_path / "new" / "calls"
    bench.write("a.yaml", ONE + f"observability_enabled: true\nmodel_call_capture_dir: {folder}\n")
    config = bench.load("a.yaml")
    preflight.captures(config, None)
    assert folder.is_dir()
    folder.chmod(0o755)
    with pytest.raises(PrerequisiteError, match="user 4711 may not write here"):
        preflight.captures(config, (4711, 4711))
    (tmp_path / "file").touch()
    bench.write("a.yaml", ONE + f"observability_enabled: true\nmodel_call_capture_dir: {tmp_path}/file\n")
    with pytest.raises(PrerequisiteError, match="cannot be recorded"):
        preflight.captures(bench.load("a.yaml"), None)
