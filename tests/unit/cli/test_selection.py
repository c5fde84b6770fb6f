"""What a list of free tokens means."""

from __future__ import annotations

import pytest

from gymctl.cli.main import main
from gymctl.cli.selection import selection, sort_tokens
from gymctl.errors import UsageError


def test_tokens_are_overrides_files_or_benchmarks() -> None:
    tokens = ["arithmetic", "a/b.yaml", "+x=1", "++y.z=2", "~a", "k=v", "gsm8k/hard", "c.yml"]
    assert sort_tokens(tokens) == (
        ["+x=1", "++y.z=2", "~a", "k=v"],
        ["a/b.yaml", "c.yml"],
        ["arithmetic", "gsm8k/hard"],
    )


def test_flags_come_before_tokens() -> None:
    chosen = selection(["b.yaml", "two"], config=["a.yaml"], benchmark=["one"], model_url="http://h")
    assert chosen.config == ("a.yaml", "b.yaml")
    assert chosen.benchmark == ("one", "two")
    assert chosen.model_url == "http://h"


def test_the_api_key_is_not_shown() -> None:
    assert "sk-1234567" not in repr(selection([], model_api_key="sk-1234567"))


def test_an_empty_token_is_an_error() -> None:
    with pytest.raises(UsageError):
        sort_tokens([""])


@pytest.mark.parametrize("command", ["build", "push", "bundle"])
def test_help_of_commands_that_make_images_leaves_out_what_changes_none(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert "--model-type" in shown and "--set-file" in shown
    for flag in ("--model-api-key", "--on-miss", "--policy-at", "--ray", "--project"):
        assert f"{flag} " not in shown
    assert ("BENCHMARK|SERVER|FILE.yaml" in shown) is (command == "build")


def test_flags_that_help_leaves_out_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["build", "no-such-benchmark-here", "--model-url", "http://h", "--project", "p"])
    assert ended.value.code == 2
    assert "no-such-benchmark-here" in capsys.readouterr().err
