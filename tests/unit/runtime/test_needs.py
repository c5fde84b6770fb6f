"""What is refused before a start, and what is only said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.errors import PrerequisiteError, PrerequisiteErrors
from gymctl.runtime import needs
from gymctl.runtime.needs import World

BARE = needs.of_engine({"Runtimes": {"runc": {}}, "DefaultRuntime": "runc"})
GPU = needs.of_engine({"Runtimes": {"runc": {}, "nvidia": {}}, "DefaultRuntime": "nvidia"})
SPARE = needs.of_engine({"Runtimes": {"runc": {}, "nvidia": {}}, "DefaultRuntime": "runc"})
PROVIDERS = "nemo_gym/sandbox/providers"
Refused = Callable[..., list[PrerequisiteError]]


class Said:
    """runtime.stack.Reporter that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, name: str, text: str) -> None:
        self.lines.append(f"{name}: {text}")

    def note(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, text: str) -> None:
        pass


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def refused(tmp_path: Path, said: Said) -> Refused:
    """The errors of a project with the server `far`, whose folder and block are as given."""

    def check(
        world: World = BARE,
        *,
        block: str = "",
        files: Mapping[str, str] | None = None,
        more: str = "",
        start_anyway: bool = False,
    ) -> list[PrerequisiteError]:
        head = "far:\n  resources_servers:\n    far:\n      entrypoint: app.py\n      domain: other\n"
        text = f"{head}{block}{more}"
        server = "resources_servers/far"
        texts = {f"{server}/app.py": "", f"{server}/requirements.txt": "", "far.yaml": text, **(files or {})}
        for name, content in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        selection = Selection(config=("far.yaml",), start_anyway=start_anyway)
        config = load(selection, cwd=tmp_path, environ={})
        try:
            needs.check(config, world, said)
        except PrerequisiteErrors as several:
            return list(several.errors)
        except PrerequisiteError as error:
            return [error]
        return []

    return check


VLLM = {"resources_servers/far/app.py": "import re\nimport vllm\n"}


def test_a_gpu_that_the_engine_does_not_have(refused: Refused, tmp_path: Path) -> None:
    (error,) = refused(files=VLLM)
    assert error.what == "`far` needs a GPU (package vllm), and the engine has none to give"
    assert error.where == f"{tmp_path}/resources_servers/far/app.py:2:1"
    assert "--start-anyway" in (error.hint or "")
    assert refused(GPU, files=VLLM) == []


def test_a_gpu_that_containers_do_not_get_by_themselves(refused: Refused) -> None:
    (error,) = refused(SPARE, files=VLLM)
    assert "`resources: {gpus: 1}` in its block gives it one" in (error.hint or "")
    assert refused(SPARE, files=VLLM, block="      resources: {gpus: 1}\n") == []
    found = {"Runtimes": {"runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}
    assert needs.of_engine(found).gpu == "not the default"


def test_gpus_that_a_block_asks_for_and_nobody_has(refused: Refused, tmp_path: Path) -> None:
    (error,) = refused(BARE, files=VLLM, block="      resources: {gpus: all}\n")
    assert error.what == "`far` asks for GPUs (`gpus: all`), and the engine has none to give"
    assert error.where == "far.yaml:6:19"
    assert "NVIDIA's container toolkit" in (error.hint or "")


def test_a_gpu_of_this_machine(refused: Refused) -> None:
    (error,) = refused(World(is_container=False, gpu="none", python=(3, 13, 1)), files=VLLM)
    assert "this machine has none" in error.what
    assert refused(World(is_container=False, gpu="there", python=(3, 13, 1)), files=VLLM) == []


def test_what_code_may_ask_for_is_no_reason_to_refuse(refused: Refused, said: Said) -> None:
    app = "def f():\n    import vllm\n    nltk.download('punkt')\n"
    assert refused(files={"resources_servers/far/app.py": app}) == []
    assert said.lines == ["far: may want network (nltk.download)"]


def test_another_python(refused: Refused) -> None:
    project = '[project]\nname = "far"\nrequires-python = ">=3.14"\n'
    (error,) = refused(files={"resources_servers/far/pyproject.toml": project})
    assert error.what == "`far` needs Python >=3.14, and runs on 3.13"
    newer = World(is_container=False, gpu="none", python=(3, 14, 2))
    assert refused(newer, files={"resources_servers/far/pyproject.toml": project}) == []


def test_a_sandbox_provider_that_nobody_defines(refused: Refused) -> None:
    files = {f"{PROVIDERS}/{name}/configs/{name}.yaml": "" for name in ("docker", "e2b")}
    (error,) = refused(block="      sandbox_provider: sandbox\n", files=files)
    assert error.what == "`far` needs a sandbox provider `sandbox`, which no config defines"
    assert error.where == "far.yaml:6:7"
    assert error.hint is not None
    assert error.hint.startswith(
        f"for example --config {PROVIDERS}/e2b/configs/e2b.yaml; there are docker, e2b;"
    )


SANDBOX = "sandbox: {{default_metadata: {{}}, {}: {{connection: {{api_key: {}}}}}}}\n"


@pytest.mark.parametrize(
    ("provider", "key", "what"),
    [
        ("docker", "null", "runs its sandboxes with docker, which is not in its container"),
        ("apptainer", "null", "runs its sandboxes with apptainer, which is not in its container"),
        ("e2b", "null", "has no key for its sandbox provider e2b"),
        ("opensandbox", "''", "has no key for its sandbox provider opensandbox"),
        ("opensandbox", "secret", None),
        ("local", "null", None),
    ],
)
def test_sandbox_providers(refused: Refused, provider: str, key: str, what: str | None) -> None:
    found = refused(block="      sandbox_provider: sandbox\n", more=SANDBOX.format(provider, key))
    assert [error.what for error in found] == ([] if what is None else [f"`far` {what}"])


def test_a_provider_in_the_block_itself(refused: Refused) -> None:
    block = "      sandbox_provider: {opensandbox: {connection: {api_key: ''}}}\n"
    (error,) = refused(block=block)
    assert error.where == "far.yaml:6:53"
    assert (error.hint or "").startswith("set OPENSANDBOX_API_KEY; ")


def test_a_program_of_this_machine(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    here = World(is_container=False, gpu="none", python=(3, 13, 1))
    block, more = "      sandbox_provider: sandbox\n", SANDBOX.format("apptainer", "null")
    monkeypatch.setenv("PATH", "")
    (error,) = refused(here, block=block, more=more)
    assert error.what == "`far` runs its sandboxes with apptainer, which is not installed"


@pytest.mark.parametrize(("host", "count"), [("127.0.0.1", 1), ("localhost", 1), ("sandbox.test", 0)])
def test_a_sandbox_service_on_loopback_is_the_container_itself(
    refused: Refused, host: str, count: int
) -> None:
    found = refused(block=f"      sandbox_host: {host}\n")
    assert len(found) == count
    here = World(is_container=False, gpu="none", python=(3, 13, 1))
    assert refused(here, block=f"      sandbox_host: {host}\n") == []


def test_all_needs_are_told_at_once(refused: Refused) -> None:
    found = refused(block="      sandbox_provider: sandbox\n", files=VLLM)
    assert [error.what.partition(" needs ")[2][:5] for error in found] == ["a GPU", "a san"]
    several = PrerequisiteErrors(found)
    assert several.details[1] == f"{found[1].what} (far.yaml:6:7)"  # what `why --up` keeps
    assert str(several).endswith("2 things are missing")


def test_it_can_be_started_anyway(refused: Refused, said: Said) -> None:
    assert refused(files=VLLM, start_anyway=True) == []
    (line,) = said.lines
    assert line.startswith("warning: `far` needs a GPU (package vllm), and the engine has none to give (")
    said.lines.clear()
    assert refused(files=VLLM, more="start_anyway: true\n") == []
    assert len(said.lines) == 1
