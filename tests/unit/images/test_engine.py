"""Which engine is used, and what may be shown of commands."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gymctl.engine import DEFAULT_HOST, Endpoint, Engine, EngineFacts, answers, has_plugin
from gymctl.errors import EngineError, PrerequisiteError
from gymctl.programs import Finished, mask


@pytest.fixture
def docker_folder(tmp_path: Path) -> Path:
    """A DOCKER_CONFIG with the context `far`, which is current."""
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "far"}))
    meta = tmp_path / "contexts" / "meta" / hashlib.sha256(b"far").hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": "tcp://far:2376"}}}))
    return tmp_path


def test_the_engine_is_the_one_that_the_docker_command_would_use(docker_folder: Path, tmp_path: Path) -> None:
    """B45."""
    base = {"DOCKER_CONFIG": str(docker_folder)}
    assert Endpoint.active(base) == Endpoint("far", "tcp://far:2376")
    assert Endpoint.active({**base, "DOCKER_CONTEXT": "default"}) == Endpoint("default", DEFAULT_HOST)
    assert Endpoint.active({**base, "DOCKER_HOST": "unix:///x.sock"}) == Endpoint("default", "unix:///x.sock")
    assert Endpoint.active({"DOCKER_CONFIG": str(tmp_path / "none")}) == Endpoint("default", DEFAULT_HOST)


def test_a_context_without_address_is_named(docker_folder: Path) -> None:
    with pytest.raises(PrerequisiteError, match="context `gone`"):
        Endpoint.active({"DOCKER_CONFIG": str(docker_folder), "DOCKER_CONTEXT": "gone"})


def test_no_answer_is_false_not_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    assert answers() is False


def test_a_plugin_is_found_where_the_user_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    plugin = tmp_path / "cli-plugins" / "docker-nobodyhasit"
    plugin.parent.mkdir()
    plugin.write_text("#!/bin/sh\n")
    plugin.chmod(0o755)
    assert has_plugin("nobodyhasit")


def test_secrets_and_logins_are_cut_out() -> None:
    text = "pip install --index https://user:pw@index.invalid/simple TOKEN=abc abcdef"
    assert (
        mask(text, ["abc", "abcdef", ""])
        == "pip install --index https://****@index.invalid/simple TOKEN=**** ****"
    )


def test_a_failed_step_tells_command_exit_code_and_last_lines() -> None:
    finished = Finished("docker compose up", 17, "", tuple(f"line {n}" for n in range(100)))
    with pytest.raises(EngineError) as caught:
        finished.check("the project does not start", hint="look")
    details = caught.value.details
    assert details[:2] == ("$ docker compose up", "exit code 17")
    assert details[-1] == "line 99"
    assert len(details) < 20


def test_another_platform_is_emulated() -> None:
    endpoint, facts = Endpoint("default", "unix:///none"), EngineFacts("26.1", (1, 45), "amd64")
    assert Engine(endpoint, facts, "linux/arm64").is_emulating
    assert not Engine(endpoint, facts, "linux/amd64").is_emulating


def test_start_interval_needs_engine_25() -> None:
    assert EngineFacts("25.0", (1, 44), "amd64").has_start_interval
    assert not EngineFacts("24.0", (1, 43), "amd64").has_start_interval
    assert EngineFacts("30.0", (2, 0), "amd64").has_start_interval
