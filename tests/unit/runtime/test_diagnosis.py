from __future__ import annotations

from dataclasses import replace

import pytest

from gymctl.config.model import Config
from gymctl.runtime import diagnosis
from gymctl.runtime.stack import ServerDeath

SECRET = "sk-planted-$ecret-4711"


def death(server: str = "weather", code: int | None = 1, *lines: str, oom: bool = False) -> ServerDeath:
    return ServerDeath(server=server, exit_code=code, was_out_of_memory=oom, last_lines=lines)


def test_a_missing_module_points_at_the_requirements(config: Config) -> None:
    fallen = death("weather", 1, "Traceback", "ModuleNotFoundError: No module named 'geopy'")
    error = diagnosis.died_early(fallen, config, seconds=2.06, where="logs/weather.log")
    assert error.what == "`weather` stopped before it was ready (exit 1 after 2.1 s)"
    assert error.hint is not None
    assert "geopy" in error.hint
    assert "/srv/images/resources_servers/weather/requirements.txt" in error.hint
    assert "weather_agent needs it" in error.details
    assert any("No module named" in line for line in error.details)


def test_log_lines_lose_secrets_and_prefix(config: Config) -> None:
    lines = diagnosis.log_tail("weather", [f"(weather) key {SECRET}"], config.secrets)
    assert lines[1] == "  key ****"


@pytest.mark.parametrize(
    ("fallen", "text"),
    [
        (death(code=3), "exit 3"),
        (death(code=137), "exit 137, killed by signal 9"),
        (death(code=137, oom=True), "out of memory"),
        (death(code=None), "exit code unknown"),
    ],
)
def test_the_cause_is_named(fallen: ServerDeath, text: str) -> None:
    assert diagnosis.cause(fallen) == text


def test_a_server_that_ends_well_too_early_is_an_error_with_a_hint(config: Config) -> None:
    error = diagnosis.died_early(death(code=0), config, seconds=1.0, where="x")
    assert error.hint is not None
    assert "keep running" in error.hint


def test_only_a_servers_own_port_counts_as_taken() -> None:
    ours = ["(weather) error: cannot listen on 127.0.0.1:15011: Address already in use"]
    assert diagnosis.taken_port(ours) == 15011
    assert diagnosis.taken_port(["OSError: [Errno 98] Address already in use: 7777"]) is None


def test_everybody_who_waits_is_found_through_others(config: Config) -> None:
    assert diagnosis.waiting_for("policy_model", config) == ["weather_agent", "weather_environment_server"]
    assert diagnosis.waiting_for("weather_environment_server", config) == []


def test_what_ends_a_ray_container_is_mended_in_the_server_whose_tasks_it_runs(config: Config) -> None:
    block = replace(config.servers["weather"], uses_ray=True, runs_ray_tasks=True)
    asked = replace(config, servers={**config.servers, "weather": block})
    lines = ("python: Error … (ModuleNotFoundError: No module named 'ray')",)
    death = ServerDeath("ray-head", exit_code=1, was_out_of_memory=False, last_lines=lines)

    error = diagnosis.died_early(death, asked, seconds=1.0, where="here")
    assert "`ray-head` stopped before it was ready" in str(error)
    assert "weather needs it" in error.details
    assert "`ray`" in (error.hint or "")
    assert str(block.folder / "requirements.txt") in (error.hint or "")
    slow = replace(death, last_lines=("Exception: The current node timed out during startup. This …",))
    assert "too busy" in (diagnosis.hint(slow, asked) or "")
    hungry = diagnosis.hint(replace(death, was_out_of_memory=True), asked)
    assert "in the block of `weather`" in (hungry or "")
