"""Every config that NeMo Gym 0.7.0 ships, and combinations, mean the same here as in its own parser.

Its answers are kept in tests/golden/nemo_gym_configs (`ask.py` there makes them in its interpreter); the
files come from its wheel. What differs on purpose stands in DELIBERATE, and in docs/nemo-gym.md.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import uv
from golden.nemo_gym_configs import leaves

from gymctl.config.load import load
from gymctl.config.server_classes import server_class
from gymctl.config.sources import Selection
from gymctl.errors import ConfigErrors, GymctlError

pytestmark = pytest.mark.timeout(1200)

DELIBERATE = {
    "an entrypoint outside of its server folder is refused: an image holds one folder": (
        "file benchmarks/legal_agent_bench/config",
        "file resources_servers/legal_agent_bench/",
    ),
    "a server folder that is not there is refused before the start, not during it": (
        "file resources_servers/ns_tools/configs/ns_tools_",
        "agent langgraph_agent on ",
        "agent langgraph_agent/reflection_agent on ",
    ),
    "an environment server of a standalone agent goes with it when the agent is put in the place of others": (
        "agent nemo_fabric_agent/",
    ),
    "an override value that the grammar cannot hold is taken as it stands": (
        "tokens ++k=",
        "file responses_api_agents/anyterminal_agent/configs/anyterminal_nemo_fabric.yaml (filled)",
        "file responses_api_agents/harbor_agent/configs/harbor_agent_opensandbox.yaml (filled)",
        "agent anyterminal_agent/anyterminal_nemo_fabric on ",
        "agent harbor_agent/harbor_agent_opensandbox on ",
    ),
    "two overrides that contradict each other are an error": ("tokens +a=2 +a.b=1", "tokens ++a=2 ++a.b=1"),
    "`++a.b.x` means the server `a.b` where files define one": ("tokens ++dotted.id.x=9",),
    "override keys are names separated by dots": ("tokens ++1.x=2", "tokens ++a/b=1"),
    "settings of Hydra itself mean nothing": ("tokens hydra.", "tokens ++hydra.", "tokens +hydra="),
    "`config_paths` of the command line adds to --config, whatever its sign": ("tokens ++config_paths=",),
    "null is the default": (
        "servers case_head_null",
        "servers case_folder_null",
        "servers case_tolerated_null",
        "servers case_dataset_repeats_null",
        "tokens ++cache_dir=null",
        "tokens ++head_server=null",
    ),
    "a value of the wrong type is told before the start": (
        "servers case_timeouts_word",
        "servers case_reserved_server",
        "servers case_dataset_agent_and_taskset",
        "agents case_multi_agent_environment",
    ),
    "a number is written as a number; a port that is text becomes one": (
        "servers case_port_text",
        "servers case_workers_text",
        "servers case_dataset_repeats_text",
    ),
    "a block has one server type": ("servers case_two_kinds",),
    "a config is a mapping, and its top-level keys are text": (
        "scalars case_keys",
        "scalars case_single_value",
        "scalars case_null_document",
    ),
    "`config_paths` that is no list is said to be so": ("scalars case_paths_text",),
    "directives in lists are followed, and may name list items": (
        "directives case_copy_in_list",
        "directives case_copy_text_in_list",
        "directives case_copy_list_item",
        "directives case_copy_blank",
    ),
    "`_delete_key` below a directive deletes what the directive brings; it works at the top level": (
        "directives case_delete_inherited",
        "directives case_delete_top_level",
    ),
    "a directive that would silently do something else is an error": (
        "directives case_inherit_self",
        "directives case_inherit_chain",
        "directives case_inherit_interpolated",
        "directives case_copy_inside_text",
        "directives case_copy_of_directive",
        "directives case_copy_and_inherit",
        "directives case_delete_empty",
    ),
}
"""Why, and how the ids of the cases start."""
GROUPS = (
    "file benchmarks",
    "file environment",
    "file resources_servers",
    "file responses_api_agents",
    "file responses_api_models",
    "file nemo_gym",
    "pair",
    "agent ",
    "order",
    "scalars",
    "servers",
    "directives",
    "agents",
    "tokens",
    "env_",
)

SLIP = ("does not declare", "means nothing", "did you mean it by")
"""What a warning says of a key that is taken for a slip: nobody's files hold one."""
ANSWERS = Path(__file__).parents[2] / "golden" / "nemo_gym_configs" / "answers.jsonl.xz"
_MOST_SHOWN = 40


@dataclass(frozen=True)
class Golden:
    """What the peer said, with what it was asked in."""

    header: dict[str, Any]
    cases: list[dict[str, Any]]


@pytest.fixture(scope="module")
def golden() -> Golden:
    header, *cases = (json.loads(line) for line in lzma.decompress(ANSWERS.read_bytes()).splitlines())
    return Golden(header, cases)


@pytest.fixture(scope="module")
def wheel(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The peer's files. It is not run, so its Python version is not asked for here."""
    target = tmp_path_factory.mktemp("wheel").resolve()
    options = ["--no-deps", "--python-version", "3.13.14", "--target", str(target)]
    package = f"nemo-gym=={golden.header['peer']}"
    subprocess.run([uv.find_uv_bin(), "pip", "install", "-q", *options, package], check=True)
    return target


@pytest.fixture(scope="module")
def work(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work").resolve()
    for name, texts in golden.header["folders"].items():
        (folder / name).mkdir()
        for file, text in texts.items():
            (folder / name / file).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module", autouse=True)
def environment(golden: Golden, wheel: Path) -> Iterator[None]:
    """Nothing but what the peer saw: configs ask for variables. The wheel is fetched before."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(
        {"PATH": before["PATH"], "HOME": before.get("HOME", "/"), **golden.header["environment"]}
    )
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module", autouse=True)
def known_classes() -> Iterator[None]:
    """The code of a server folder is read once and not for each of hundreds of cases."""
    read = cache(server_class.read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            server_class,
            "read",
            lambda folder, entrypoint, parsed, roots: read(folder, entrypoint, roots=tuple(roots)),
        )
        yield


@pytest.mark.parametrize("group", GROUPS)
def test_configs_mean_the_same_as_in_nemo_gym(group: str, golden: Golden, work: Path, wheel: Path) -> None:
    asked = [case for case in golden.cases if case["id"].startswith(group)]
    assert asked
    told = {case["id"]: problem for case in asked if (problem := unequal(case, work, wheel))}
    wrong = [f"{name}: {problem}" for name, problem in told.items() if _reason(name) is None]
    assert not wrong, f"{len(wrong)} of {len(asked)}:\n" + "\n".join(wrong[:_MOST_SHOWN])
    starts = [start for starts in DELIBERATE.values() for start in starts if start.startswith(group)]
    stale = [start for start in starts if not any(name.startswith(start) for name in told)]
    assert not stale, "no longer different: " + ", ".join(stale)


def test_every_case_belongs_to_a_group_and_every_file_is_asked_for(golden: Golden) -> None:
    names = [case["id"] for case in golden.cases]
    assert not [name for name in names if not name.startswith(GROUPS)]
    assert len({name.removesuffix(" (filled)") for name in names if name.startswith("file ")}) == 916


def unequal(case: dict[str, Any], work: Path, wheel: Path) -> str | None:
    """How gymctl's result differs from the peer's; None when it does not."""
    our = ours(case, work, wheel)
    if "error" in case and "errors" in our:
        # A traceback and Hydra's own exit have no class that could be compared.
        is_named = case["error"].endswith("Error") and not case["error"].startswith("crash")
        if not is_named or case["error"] in our["errors"]:
            return None
        return f"peer {case['error']}, gymctl {' '.join(our['errors'])}: {our['message']}"
    if "error" in case:
        return f"the peer refuses it ({case['error']}), gymctl does not"
    if "errors" in our:
        return f"gymctl refuses it: {our['message']}"
    if slips := [text for text in our["warnings"] if any(mark in text for mark in SLIP)]:
        return f"a key of theirs is taken for a slip: {slips}"
    found = list(leaves.differences(case["document"], our["document"]))
    return f"{len(found)} keys differ: {'; '.join(found[:5])}" if found else None


def _reason(name: str) -> str | None:
    return next((why for why, starts in DELIBERATE.items() if name.startswith(starts)), None)


def ours(case: dict[str, Any], work: Path, wheel: Path) -> dict[str, Any]:
    """What gymctl makes of a case, in the words of the golden file."""
    folder = work / case["folder"]
    selection = Selection(
        config=tuple(case.get("config", ())),
        benchmark=tuple(case.get("benchmark", ())),
        environment=tuple(case.get("environment", ())),
        resources_server=tuple(case.get("resources_server", ())),
        model_type=next(iter(case.get("model_type", ())), None),
        agent_type=next(iter(case.get("agent_type", ())), None),
        overrides=tuple(case["overrides"]),
    )
    try:
        config = load(selection, cwd=folder, environ={"NEMO_GYM_EXTRA_ROOTS": str(wheel)})
    except GymctlError as error:
        errors = error.errors if isinstance(error, ConfigErrors) else [error]
        return {"errors": [type(one).__name__ for one in errors], "message": error.what}
    places = {str(folder): "<work>", str(work): "<work>", str(wheel): "<wheel>"}
    return {"document": leaves.document(config.document, places), "warnings": config.warnings}
