"""The slice of the catalogue in every test run: five servers, ours between them, and one written here."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.program import gymctl, read_lines

from peer import setup

PACKAGE = "nemo-gym==0.7.0"
SECRET = "k-7c1f0e93ab-slice"
LARGE = 200_000
"""Characters; an environment variable ends at 131,072 bytes."""

DIARY = """
import os
from pathlib import Path

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class DiaryConfig(BaseResourcesServerConfig):
    text: str = ""
    diary_api_key: str = ""


class Diary(SimpleResourcesServer):
    ray_enabled = False
    config: DiaryConfig

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/write")(self.write)
        return app

    async def write(self):
        page = Path(__file__).parent / "pages" / "today.txt"
        page.parent.mkdir(exist_ok=True)
        page.write_text("dear diary")
        return {
            "wrote": page.read_text(),
            "uid": os.getuid(),
            "length": len(self.config.text),
            "key": self.config.diary_api_key,
        }

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


if __name__ == "__main__":
    Diary.run_webserver()
"""


@dataclass(frozen=True)
class Server:
    """One of the five: its ids in its own config."""

    name: str
    server: str
    agent: str
    implementation: str = "simple_agent"
    flavour: str = ""
    known_to_differ: frozenset[int] = frozenset()
    """Rows of the recorded rollouts whose reward an older version of the verifier gave."""

    @property
    def selected(self) -> str:
        return f"{self.name}/{self.flavour or self.name}"

    @property
    def ours(self) -> str:
        return f"{setup.OURS}{self.agent}"


SERVERS = (
    # Row 2 answers `\\boxed{C: text}`, which the version that recorded it did not accept.
    Server("mcqa", "mcqa", "mcqa_simple_agent", known_to_differ=frozenset({2})),
    Server("example_multi_step", "example_multi_step_resources_server", "example_multi_step_simple_agent"),
    Server(
        "example_session_state_mgmt",
        "example_session_state_mgmt_resources_server",
        "example_session_state_mgmt_simple_agent",
    ),
    Server(
        "structeval",
        "structeval_nonrenderable",
        "structeval_nonrenderable_simple_agent",
        flavour="structeval_nonrenderable",
    ),
    Server(
        "example_multi_turn_gymnasium",
        "example_multi_turn_gymnasium",
        "example_multi_turn_gymnasium_agent",
        "gymnasium_agent",
    ),
)


@dataclass
class Slice:
    """The project, up."""

    folder: Path
    project: str
    root: Path
    """The package's files."""
    words: list[str]
    """How gymctl finds it."""
    urls: dict[str, str] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)

    def data(self, name: str) -> Path:
        return self.root / "resources_servers" / name / "data"

    def eval(self, rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        """Run rows, each through the agent that it names; the records in the order of the rows."""
        source, out = self.folder / f"{name}.rows.jsonl", self.folder / f"{name}.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        arguments = (
            "eval",
            "--no-serve",
            *self.words,
            "-i",
            source,
            "-o",
            out,
            "--allow-unsupported-pairing",
        )
        done = gymctl(*arguments, "--retry", "none", cwd=self.folder)
        assert done.returncode == 0, done.stderr + done.stdout
        return sorted(read_lines(out), key=lambda record: record["_ng_task_index"])


def write_server(folder: Path, name: str, code: str) -> None:
    place = folder / "resources_servers" / name
    place.mkdir(parents=True)
    (place / "app.py").write_text(code)
    (place / "requirements.txt").write_text("-e nemo-gym[dev] @ ../../\n")


def document() -> dict[str, Any]:
    """What stands beside the five servers' own configs."""
    made: dict[str, Any] = {}
    for one in SERVERS:
        made[one.ours] = {setup.AGENTS: {f"{setup.OURS}{one.implementation}": setup.agent(one.server)}}
    made["weather"] = {setup.KIND: {"weather": {"entrypoint": "app.py", "domain": "agent"}}}
    made["weather_simple_agent"] = {setup.AGENTS: {"simple_agent": setup.agent("weather")}}
    diary = {
        "entrypoint": "app.py",
        "domain": "other",
        "text": "x" * LARGE,
        "diary_api_key": "${diary_api_key}",
    }
    made["diary"] = {setup.KIND: {"diary": diary}}
    made["root_diary"] = {setup.KIND: {"diary": {**diary, "text": "", "resources": {"user": "root"}}}}
    return made


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout
