"""What the documents say is what the program has: commands, flags, exit codes, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from gymctl import errors
from gymctl.cli.eval_options import SETTINGS
from gymctl.cli.main import application, main
from gymctl.contract.evaluation import KEYS
from gymctl.contract.health import CHECKS

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = (
    "README.md",
    "docs/*.md",
    "server_images/**/README.md",
    "benchmarks/**/README.md",
    "compose/README.md",
)
PAGES = sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern))
COMMAND = re.compile(r"^(?:\$ | {4})?gymctl ((?:[^\n\\#]|\\\n)+)", re.M)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def commands_in(text: str) -> Iterator[list[str]]:
    """The arguments of every gymctl command line of a page; continued lines are joined."""
    blocks = re.findall(r"^```\w*\n(.*?)^```|((?:^ {4}\S.*\n)+)", text, re.S | re.M)
    for fenced, indented in blocks:
        for arguments in COMMAND.findall(fenced or indented):
            yield shlex.split(arguments.replace("\\\n", " "), comments=True)


def flags_of(arguments: list[str]) -> tuple[set[str], set[str]]:
    """The flags a command line uses, and those that the command has."""
    command = typer.main.get_command(application())
    words = list(arguments)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    return {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}, known | {"-h", "--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_the_page_exist_with_their_flags(page: Path) -> None:
    names = {*typer.main.get_command(application()).commands}  # type: ignore[attr-defined]
    for arguments in commands_in(page.read_text(encoding="utf-8")):
        assert arguments[0] in names, f"gymctl {shlex.join(arguments)}"
        used, known = flags_of(arguments)
        assert used <= known, f"gymctl {shlex.join(arguments)}: {used - known}"


def test_the_config_commands_of_the_readme_work_as_they_are_typed(tmp_path, monkeypatch, capsys) -> None:
    """In a folder of the reader's own, where only the built-in benchmarks and servers are found."""
    monkeypatch.chdir(tmp_path)
    lines = [line for line in commands_in((ROOT / "README.md").read_text("utf-8")) if line[0] == "config"]
    assert len(lines) >= 5
    for arguments in lines:
        try:
            main(arguments)
        except SystemExit as ended:
            assert ended.code in (0, None), f"gymctl {shlex.join(arguments)}: {capsys.readouterr().err}"


def test_a_command_that_does_not_exist_is_seen() -> None:
    page = "```\n$ gymctl fly --high \\\n    up  # soon\n```\n"
    assert list(commands_in(page)) == [["fly", "--high", "up"]]
    used, known = flags_of(["eval", "weather", "--nonsense", "-k", "2"])
    assert used - known == {"--nonsense"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_readme_names_every_exit_code() -> None:
    table = re.findall(r"^\| ([\d, ]+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    named = {int(code) for cell in table for code in cell.split(",")}
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    codes = {value.exit_code for value in classes if issubclass(value, errors.GymctlError)}
    assert named == codes | {0, errors.EXIT_BUG, 129, 143}


def test_the_first_screen_of_the_readme_shows_the_two_commands() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:24]
    assert any(line.startswith("make demo") for line in first_screen)
    assert any(line.startswith("make test") for line in first_screen)


def test_make_targets_on_the_first_screen_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_page_about_settings_names_every_key() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    unsaid = {"upload_rollouts"}  # nothing to tell so far
    assert {key for key in KEYS if f"`{key}" in page} == set(KEYS) - unsaid
    for key, flag in SETTINGS.values():
        assert any(f"`{key.split('.')[0]}`" in line and f"`{flag}`" in line for line in page.splitlines()), (
            flag
        )


def test_the_page_about_health_explains_every_check() -> None:
    page = (ROOT / "docs" / "health.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## The checks")[2], re.M)
    assert tuple(rows) == CHECKS


def test_the_readme_names_every_server_that_comes_with_it() -> None:
    table = (
        (ROOT / "README.md").read_text().partition("## Servers that come with it")[2].partition("\n## ")[0]
    )
    built_in = {path.parent.name for path in ROOT.glob("server_images/*/*/app.py")}
    named = set(re.findall(r"`(\w+)`", table)) - {"gymnasium"}
    assert named == built_in
