"""reasoning_tasks scores real answers, in the environment that the process runtime builds for it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.own_process import own_process

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.runtime.envs import ensure
from gymctl.servers.inprocess import make_part
from gymctl.transport import Transport

REPO = Path(__file__).resolve().parents[3]
FOLDER = REPO / "server_images" / "resources_servers" / "reasoning_tasks"
ROW = {"family": "chain_sum", "seed": 7, "index": 0}


class Silent:
    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def python() -> Path:
    config = load(Selection(resources_server=("reasoning_tasks",), model_type="scripted_model"))
    return asyncio.run(ensure(config, Silent())).pythons["reasoning_tasks"]


@pytest.fixture(scope="module")
def truth(python: Path) -> str:
    """The answer to ROW, from the package itself."""
    script = "import reasoning_gym as r; print(r.create_dataset('chain_sum', seed=7, size=1)[0]['answer'])"
    told = subprocess.run([python, "-c", script], cwd=FOLDER, capture_output=True, text=True, check=True)
    return told.stdout.strip()


@pytest.fixture
async def url(python: Path, free_port: int, tmp_path: Path, transport: Transport) -> AsyncIterator[str]:
    part = make_part("reasoning_tasks", "resources_servers", "reasoning_tasks", {"domain": "math"})
    part = part.model_copy(update={"bind_port": free_port})
    async with own_process(part, FOLDER, python, tmp_path / "part.json", transport) as address:
        yield address


async def verify(transport: Transport, url: str, text: str, **row: object) -> tuple[int, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    body = {"responses_create_params": {"input": "?"}, "response": {"output": output}, **row}
    answer = await transport.call("POST", f"{url}/verify", orjson.dumps(body))
    return answer.status, answer.json()


async def test_answers_are_scored_by_the_family_s_own_verifier(
    truth: str, transport: Transport, url: str
) -> None:
    for text in (truth, f"The answer is {truth}.", f"<answer>{truth}</answer>"):
        status, verdict = await verify(transport, url, text, **ROW)
        assert (status, verdict["reward"], verdict["extracted_answer"]) == (200, 1.0, truth)
        assert verdict["family"] == "chain_sum"
    assert (await verify(transport, url, "", **ROW))[1]["reward"] == 0.0

    # An answer that a family cannot read is wrong, not an error.
    factors = {"family": "prime_factorization", "seed": 1, "index": 0}
    status, verdict = await verify(transport, url, "no idea", **factors)
    assert (status, verdict["reward"]) == (200, 0.0)

    for wrong in ({"family": "nonsense"}, {"config": {"min_terms": 9, "max_terms": 2}}):
        row = {**ROW, **wrong}
        status, verdict = await verify(transport, url, "1", **row)
        assert status == 500
        assert f"no task of reasoning_gym: `{row['family']}` with seed 7" in verdict
