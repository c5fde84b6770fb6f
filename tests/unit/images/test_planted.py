"""What should not be in an image is found before the image is given away, and told without its value."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.images import planted
from gymctl.images.plan import ImagePlan, plan_server

CANARY = "sk-CANARY-4711"


def plan(root: Path, **files: str) -> ImagePlan:
    folder = root / "weather"
    for name, text in {"app.py": "app = 1", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return plan_server(folder, "resources_servers", "weather", "gymctl/base:1", ("w",))


def test_files_of_keys_and_results_are_not_part_of_an_image(tmp_path: Path) -> None:
    """B47."""
    names = ("env.yaml", ".env", "sub/.env.local", "results/x.jsonl", ".git/config", "sub/env.yaml")
    found = plan(tmp_path, **dict.fromkeys(names, CANARY))
    assert set(found.context.files) == {"app.py"}
    assert planted.places(found.context, {CANARY}) == []


def test_a_secret_in_a_file_is_named_by_its_place_and_never_shown(tmp_path: Path) -> None:
    found = plan(tmp_path, **{"data/judge.json": f'{{"key": "{CANARY}"}}', "app.py": f"KEY = '{CANARY}'"})
    assert planted.places(found.context, {CANARY, "other-secret"}) == ["app.py", "data/judge.json"]
    told = list(planted.warnings([found], {CANARY}))
    assert len(told) == 2
    assert "resources_servers/weather holds a secret of the configuration (data/judge.json)" in told[1]
    assert not any(CANARY in line for line in told)


def test_short_values_stand_everywhere(tmp_path: Path) -> None:
    found = plan(tmp_path, **{"app.py": "app = 'dummy'"})
    assert planted.places(found.context, {"dummy", ""}) == []


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("ARG INDEX_TOKEN", ["INDEX_TOKEN"]),
        ("arg github_password=x", ["github_password"]),
        ("  ENV API_KEY=abc", ["API_KEY"]),
        ("ARG PORT=80", []),
        ("ARG TOKENIZER=gpt2", []),
        ("# ARG INDEX_TOKEN", []),
        ("RUN --mount=type=secret,id=token true", []),
    ],
)
def test_an_argument_that_sounds_like_a_secret_is_warned_of(
    tmp_path: Path, line: str, names: list[str]
) -> None:
    """B48."""
    found = plan(tmp_path, Dockerfile=f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\n{line}\n")
    assert planted.arguments(found) == names
    told = list(planted.warnings([found], ()))
    assert len(told) == bool(names)
    assert all(name in told[0] for name in names)


def test_our_own_template_gives_no_warning(tmp_path: Path) -> None:
    assert list(planted.warnings([plan(tmp_path, **{"requirements.txt": "tabulate"})], ())) == []
