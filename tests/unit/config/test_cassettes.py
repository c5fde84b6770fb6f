"""`--model record:FILE` and `replay:FILE`: what becomes of the model servers of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.config.checks.pairing import WAIVER
from gymctl.config.shaping.cassettes import spoken
from gymctl.errors import ConfigError, UsageError

from .conftest import ENV, MODEL, WEATHER, Workbench

PICKY = WEATHER.replace("domain: agent}", "domain: agent, allowed_model_types: [vllm_model]}")
JUDGE = """\
judge_model:
  responses_api_models:
    vllm_model: {entrypoint: app.py, base_url: "${judge_url}", api_key: "${judge_key}", port: 9123}
"""


@pytest.fixture
def deck(bench: Workbench) -> Workbench:
    folder = bench.folder / "responses_api_models/cassette_model"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("")
    bench.write("model.yaml", MODEL)
    bench.write("weather.yaml", WEATHER)
    return bench


def test_a_recorder_takes_the_name_of_the_model_that_it_records(deck: Workbench) -> None:
    deck.write("env.yaml", ENV)
    config = deck.load("weather.yaml", "model.yaml", model="record:out/run.cassette:my-model")
    cassette, live = config.servers["policy_model"], config.servers["policy_model_live"]
    file = str(deck.folder / "out/run.cassette")
    assert (cassette.implementation, live.implementation) == ("cassette_model", "vllm_model")
    assert (cassette.settings["mode"], cassette.settings["file"]) == ("record", file)
    assert cassette.settings["mounts"] == [{"path": file, "writable": True}]
    assert [reference.name for reference in cassette.calls] == ["policy_model_live"]
    assert live.settings["base_url"] == "http://127.0.0.1:9/v1"
    assert config.document["policy_model_name"] == "my-model"
    assert [reference.name for reference in config.servers["weather_agent"].calls][-1] == "policy_model"


def test_a_replay_needs_neither_a_model_nor_its_url_and_key(deck: Workbench) -> None:
    deck.write("judge.yaml", JUDGE)
    for files in (["weather.yaml"], ["weather.yaml", "model.yaml", "judge.yaml"]):
        config = deck.load(*files, model="replay:run.cassette")
        models = {name: block for name, block in config.servers.items() if "model" in block.kind}
        assert {block.implementation for block in models.values()} == {"cassette_model"}
        assert all(not block.calls and block.settings["on_miss"] == "fail" for block in models.values())
        assert not any("placeholder" in warning for warning in config.warnings)
    assert config.servers["judge_model"].port == 9123


def test_a_miss_that_asks_the_model_needs_it(deck: Workbench) -> None:
    deck.write("env.yaml", ENV)
    config = deck.load("weather.yaml", "model.yaml", model="replay:run.cassette", on_miss="live")
    assert [reference.name for reference in config.servers["policy_model"].calls] == ["policy_model_live"]
    with pytest.raises(ConfigError, match="no model server"):
        deck.load("weather.yaml", model="replay:run.cassette", on_miss="live")


def test_a_port_stays_with_the_name_and_is_not_taken_twice(deck: Workbench) -> None:
    deck.write("env.yaml", ENV + "judge_url: http://x/v1\njudge_key: k\n")
    deck.write("judge.yaml", JUDGE)
    config = deck.load("weather.yaml", "model.yaml", "judge.yaml", model="record:run.cassette")
    assert config.servers["judge_model"].port == 9123
    assert config.servers["judge_model_live"].port == -1


def test_overrides_mean_the_model_that_is_recorded(deck: Workbench) -> None:
    deck.write("env.yaml", ENV)
    override = "++policy_model.responses_api_models.vllm_model.return_token_id_information=true"
    config = deck.load("weather.yaml", "model.yaml", model="record:run.cassette", overrides=(override,))
    assert config.servers["policy_model_live"].settings["return_token_id_information"] is True
    writes = config.writers["policy_model_live.responses_api_models.vllm_model.base_url"]
    assert [str(write.origin) for write in writes] == ["model.yaml:3:38", "--model record:run.cassette"]


def test_what_a_verifier_accepts_is_asked_of_the_recorded_model(deck: Workbench) -> None:
    deck.write("env.yaml", ENV)
    deck.write("picky.yaml", PICKY)
    assert deck.load("picky.yaml", "model.yaml", model="record:run.cassette").servers
    assert deck.load("picky.yaml", model="replay:run.cassette").servers
    deck.write("other.yaml", PICKY.replace("[vllm_model]", "[openai_model]"))
    with pytest.raises(ConfigError, match="is not one that"):
        deck.load("other.yaml", "model.yaml", model="record:run.cassette")
    waived = deck.load(
        "other.yaml", "model.yaml", model="record:run.cassette", allow_unsupported_pairing=True
    )
    assert waived.document[WAIVER] is True


def test_a_cassette_is_looked_for_below_the_search_roots(deck: Workbench) -> None:
    below = deck.write("elsewhere/benchmarks/x/run.cassette", "")
    config = deck.load("weather.yaml", model="replay:benchmarks/x/run.cassette", search_dir=("elsewhere",))
    assert config.servers["policy_model"].settings["file"] == str(below)


@pytest.mark.parametrize(
    ("model", "on_miss", "said"),
    [
        ("record:", None, "names no file"),
        ("replay:", None, "names no file"),
        ("record:x.cassette:", None, "names no model"),
        ("record:x.cassette", "live", "goes with replay"),
        ("some-model", "live", "goes with --model replay"),
        (None, "mock", "goes with --model replay"),
        ("replay:x.cassette", "ask", "must be fail, live or mock"),
    ],
)
def test_other_words_are_refused(model: str | None, on_miss: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        spoken(model, on_miss, tmp_path, lambda name: None)


@pytest.mark.parametrize("model", [None, "", "luna-4", "qwen2:7b", "org/model:tag", "records:x", "replay"])
def test_names_of_models_stay_names(model: str | None, tmp_path: Path) -> None:
    assert spoken(model, None, tmp_path, lambda name: None) is None


def test_a_model_name_may_hold_colons(tmp_path: Path) -> None:
    cassette = spoken("record:a.cassette:qwen2:7b", None, tmp_path, lambda name: None)
    assert cassette is not None
    assert (cassette.path, cassette.model) == (tmp_path / "a.cassette", "qwen2:7b")
