"""scripts/test.sh and .ci/run: Docker tests run, are skipped with a reason, or are required."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Checkout

NO_ENGINE = "exit 3"
PYTEST = 'echo "require=${GYMCTL_REQUIRE_DOCKER:-}"; exit ${PYTEST_EXIT:-0}'


@pytest.fixture(autouse=True)
def _scripts(checkout: Checkout) -> None:
    checkout.real("scripts/test.sh", ".ci/run")
    checkout.fake(checkout.folder / "scripts/setup.sh")
    for tool in ("ruff", "pyright"):
        checkout.fake(checkout.folder / ".venv/bin" / tool)
    checkout.fake(checkout.folder / ".venv/bin/pytest", PYTEST)


def engine(checkout: Checkout, script: str) -> None:
    checkout.fake(checkout.folder / "scripts/ensure_docker.sh", script)


def test_without_an_engine_the_last_line_says_why_docker_tests_were_skipped(checkout: Checkout) -> None:
    engine(checkout, NO_ENGINE)
    answer = checkout.run("scripts/test.sh")
    assert answer.returncode == 0
    assert "require=\n" in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("Docker tests skipped: no Docker engine")


def test_failing_tests_keep_their_exit_code_and_the_last_line(checkout: Checkout) -> None:
    engine(checkout, NO_ENGINE)
    answer = checkout.run("scripts/test.sh", PYTEST_EXIT="1")
    assert answer.returncode == 1
    assert answer.stdout.splitlines()[-1].startswith("Docker tests skipped: ")


def test_ci_refuses_to_skip_docker_tests(checkout: Checkout) -> None:
    engine(checkout, NO_ENGINE)
    answer = checkout.run("scripts/test.sh", CI="true")
    assert answer.returncode == 1
    assert "Docker tests are required with CI=true" in answer.stderr
    assert not [call for call in checkout.calls if call.startswith("pytest")]


def test_with_an_engine_docker_tests_are_required_and_nothing_is_installed(checkout: Checkout) -> None:
    engine(checkout, "exit 0")
    answer = checkout.run("scripts/test.sh")
    assert answer.returncode == 0
    assert answer.stdout.splitlines()[-1] == "require=1"
    assert [call for call in checkout.calls if "ensure_docker" in call] == ["ensure_docker.sh --check"]


@pytest.mark.parametrize("works", [NO_ENGINE, "exit 0"])
def test_arguments_reach_pytest_unchanged(checkout: Checkout, works: str) -> None:
    engine(checkout, works)
    checkout.run("scripts/test.sh", "tests/docker", "-k", "one or two")
    assert checkout.calls[-1] == "pytest tests/docker -k one or two"


@pytest.mark.parametrize("tool", ["ruff", "pyright"])
def test_style_and_type_errors_fail(checkout: Checkout, tool: str) -> None:
    engine(checkout, "exit 0")
    checkout.fake(checkout.folder / ".venv/bin" / tool, "exit 1")
    assert checkout.run("scripts/test.sh").returncode == 1


@pytest.mark.parametrize("code", [0, 2])
def test_ci_removes_containers_of_its_own_run_only(checkout: Checkout, code: int) -> None:
    listing = checkout.folder / "containers"
    listing.write_text("aaa-before\n")
    checkout.fake(checkout.bin / "docker", f'[ "$1" != ps ] || cat {listing}')
    checkout.fake(checkout.bin / "make", f'echo "CI=$CI"; echo bbb-left >>{listing}; exit {code}')
    answer = checkout.run(".ci/run")
    assert (answer.returncode, answer.stdout) == (code, "CI=true\n")
    assert [call for call in checkout.calls if call.startswith("docker rm")] == ["docker rm -f -v bbb-left"]
