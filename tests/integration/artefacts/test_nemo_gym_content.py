"""Configurations that NeMo Gym ships mean the same packed as they do in its package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.contents import unpacked

from gymctl.artefacts.gather import gather
from gymctl.config.load import load
from gymctl.config.model import Config
from gymctl.config.sources import Selection
from gymctl.images.context import server_context
from gymctl.images.nemo_gym import package_of
from gymctl.runtime.releases import folders

SELECTED = (
    {"benchmark": ("aegis_v4_safety",)},  # keys with defaults, a judge of its own
    {"benchmark": ("gsm8k",)},  # prompts and a prepare script
    {"benchmark": ("labbench2_vlm",)},  # large files beside the code
    {"environment": ("cline_math",)},  # a folder of environments, an agent elsewhere
    {"resources_server": ("example_single_tool_call/example_single_tool_call_single_agent_turn",)},
    {"resources_server": ("terminal_bench_4",)},  # includes files of a benchmark
)


@pytest.mark.parametrize("chosen", SELECTED, ids=lambda chosen: next(iter(chosen.values()))[0])
def test_a_packed_configuration_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, tuple[str, ...]]
) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path(folders(["nemo-gym==0.7.0"], print)[0])
    selection = Selection(search_dir=(str(root),), needs_model=False, **chosen)
    for dataset in load(selection).datasets:
        if dataset.type == "benchmark":  # as if they were made: most scripts download
            rows = tmp_path / dataset.jsonl_fpath
            rows.parent.mkdir(parents=True, exist_ok=True)
            rows.write_text('{"a": 1}\n')
    config = load(selection)

    content = gather(config, selection)
    target = unpacked(content, tmp_path / "packed")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    packed = Selection(benchmark=(content.manifest.benchmark,), search_dir=(str(target),), needs_model=False)
    again = load(packed, cwd=elsewhere)

    assert document(again, target, elsewhere) == document(config, root, tmp_path)
    assert [one.family for one in again.servers.values()] == [one.family for one in config.servers.values()]
    theirs = [name for name, one in again.servers.items() if one.family == "nemo_gym"]
    assert theirs
    for name in theirs:
        before, after = config.servers[name], again.servers[name]
        assert after.folder.is_relative_to(target)
        assert package_of(after) == package_of(before)
        assert server_context(after.folder).digest() == server_context(before.folder).digest()


def document(config: Config, root: Path, cwd: Path) -> dict[str, Any]:
    """What it resolves to, but for the files that were read; folders by their place."""
    text = json.dumps({**config.document, "config_paths": None}, default=str)
    return json.loads(text.replace(str(root), "ROOT").replace(str(cwd), "CWD"))
