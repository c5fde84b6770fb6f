"""What the servers of NeMo Gym 0.7.0 need, as their text shows it, against what we found by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gymctl.config.checks import near_keys
from gymctl.config.load import load
from gymctl.config.model import ServerBlock
from gymctl.config.needs.catalogue import Catalogue, Listed
from gymctl.config.problems import Problems
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.server_classes.server_class import ServerClasses
from gymctl.config.sources import Selection
from gymctl.config.tree.origins import Origins
from gymctl.contract.servers import KINDS, ServerKind
from gymctl.errors import ConfigError
from gymctl.runtime import releases

READ = {
    # Nothing but their packages, by the evidence and by searches in their text.
    **dict.fromkeys(
        [
            *("mcqa", "arc_agi", "blackjack", "calendar", "circle_click", "circle_count", "citation_if"),
            *("equivalence_rule", "example_multi_step", "example_single_tool_call", "format_verification"),
            *(
                "graphwalks",
                "grl_sokoban",
                "grl_tetris",
                "gui_coordinate",
                "gymnasium",
                "hotpotqa_qa",
                "mrcr",
            ),
            *("ruler", "ruler2", "spartqa", "string_match", "structeval", "structured_outputs", "wordle"),
            *("workplace_assistant", "xlam_fc", "lc_niah", "math_with_code"),
        ],
        "",
    ),
    "code_gen": "ray",
    "equivalence_llm_judge": "judge",
    "genrm_compare": "gpu judge ray network setting",
    "math_with_judge": "gpu? judge ray? network?",
    "text_to_sql": "judge",
    "swerl_gen": "sandbox ray",
    "deepswe": "sandbox",
    "denovo_swe": "sandbox",
    "terminal_bench_2_1": "sandbox",
    "math_formal_lean": "sandbox",
    "cvdp": "sandbox setting",
    "bigcodebench": "network",
    "ether0": "network",
    "evalplus": "ray network",
    "iheval": "network",
    "vlm_eval_kit": "network",
    "google_search": "network key",
    "ifbench": "network git programs",
    "instruction_following": "network git",
    "longmt_eval": "gpu ray network git",
    "wmt_translation": "gpu ray network",
    "openenv": "git",
    "interactive_browser": "programs",
}
VLLM = {"asr_leaderboard", "librispeech_pc", "musan", "numb3rs"}
"""Their verifier takes the model servers of vLLM only."""
OWN_MODEL = {"lmarena_v2", "lmarena_v3", "ruler"}
"""They bring `policy_model`, a vllm_model, themselves."""
REFUSED = {
    "legal_agent_bench": "`entrypoint` must lie in the server folder",
    "nemotron_3.5_super": "3 values are missing",  # a judge of the user's own
    "nemotron_3_ultra": "`benchmarks/ruler/config_nemotron_3_256k.yaml` not found",  # nor in the package
}


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(releases.folders(["nemo-gym==0.7.0"], print)[0])


@pytest.fixture(scope="module")
def rows(root: Path) -> list[Listed]:
    return list(Catalogue(SearchRoots((root,))).listed())


def needs(row: Listed) -> str:
    kinds = dict.fromkeys(need.kind for need in row.all_needs)
    return " ".join(f"{kind}?" if row.is_in_some(kind) else kind for kind in kinds)


def test_everything_in_the_package_is_found(rows: list[Listed]) -> None:
    assert Counter(row.kind for row in rows) == {
        "resources_servers": 145,
        "responses_api_agents": 56,
        "responses_api_models": 10,
        "environment_servers": 4,
        "benchmarks": 120,
        "environments": 49,
    }
    assert {row.family for row in rows} == {"nemo_gym", None}


def test_needs_are_those_that_reading_the_servers_found(rows: list[Listed]) -> None:
    found = {row.name: needs(row) for row in rows if row.kind == "resources_servers"}
    assert {name: found[name] for name in READ} == READ


def test_models_that_serve_their_own_weights_need_a_gpu(rows: list[Listed]) -> None:
    models = [row for row in rows if row.kind == "responses_api_models"]
    certain = {row.name for row in models for need in row.needs if need.kind == "gpu" and need.is_certain}
    assert certain == {"local_vllm_model", "genrm_model"}


def test_every_need_has_a_line_that_is_there(rows: list[Listed]) -> None:
    for need in {need for row in rows for need in row.all_needs}:
        lines = Path(need.where.source).read_text("utf-8", "replace").splitlines()
        assert 1 <= (need.where.line or 0) <= len(lines), need


def test_every_benchmark_is_loaded_with_its_prompts_and_scripts(
    root: Path, rows: list[Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSANDBOX_API_KEY", "k")
    benchmarks = [row for row in rows if row.kind == "benchmarks"]
    refused: dict[str, str] = {}
    for row in benchmarks:
        names = [flavour.name for flavour in row.flavours]
        selection = Selection(
            benchmark=(row.name if row.name in names else names[0],),
            search_dir=(str(root),),
            model_type=None
            if row.name in OWN_MODEL
            else "vllm_model"
            if row.name in VLLM
            else "openai_model",
            model="m",
            model_url="http://localhost:9/v1",
            model_api_key="k",
        )
        try:
            config = load(selection)
        except ConfigError as error:
            refused[row.name] = str(error)
            continue
        for dataset in config.datasets:
            for file in (dataset.prepare_script, dataset.settings.get("prompt_config")):
                is_there = file is None or any((place / file).is_file() for place in config.search_roots)
                assert is_there, (row.name, file)
    assert refused.keys() == REFUSED.keys(), refused
    assert all(part in refused[name] for name, part in REFUSED.items())


def block_of(kind: ServerKind, folder: Path, key: str) -> ServerBlock:
    block = {key: 1, "entrypoint": "app.py"}
    return ServerBlock("it", kind, folder.name, "app.py", folder, block, (), "h", 1, is_port_explicit=False)


@pytest.fixture(scope="module")
def declared(root: Path) -> list[tuple[ServerKind, Path, list[str]]]:
    """Kind, folder and keys of every server whose class is wholly known."""
    classes = ServerClasses((root,))
    folders = [(kind, file.parent) for kind in KINDS for file in sorted((root / kind).glob("*/app.py"))]
    listed = [(kind, place, block_of(kind, place, "entrypoint")) for kind, place in folders]
    found = [(kind, place, near_keys.known(block, classes.of(block))) for kind, place, block in listed]
    return [(kind, place, sorted(keys)) for kind, place, keys in found if keys]


def test_nearly_all_classes_are_wholly_known(declared: list[Any]) -> None:
    assert len(declared) >= 200


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_slip_in_a_key_of_any_server_is_told(root: Path, declared: list[Any], data: st.DataObject) -> None:
    """One letter left out, doubled, or changed with its neighbour."""
    kind, folder, keys = data.draw(st.sampled_from(declared))
    key = data.draw(st.sampled_from(keys))
    at = data.draw(st.integers(1, len(key) - 2))
    slips = [key[:at] + key[at + 1 :], key[: at + 1] + key[at:]]
    if len(key) > 4:
        slips.append(key[:at] + key[at + 1] + key[at] + key[at + 2 :])
    slip = data.draw(st.sampled_from(slips))
    texts = [file.read_bytes() for file in folder.rglob("*") if file.suffix in (".py", ".md", ".txt", ".sh")]
    assume(slip not in keys and not any(slip.encode() in text for text in texts))
    problems = Problems()
    near_keys.check([block_of(kind, folder, slip)], Origins({}), ServerClasses((root,)), problems)
    [warning] = problems.warnings
    assert f"does not declare `{slip}`" in warning
    assert "; did you mean `" in warning
