"""Prompt files and skills: what they make of rows (CONTRACT 8.6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.servers import Address, ServerEntry, ServerKind, ServerTable
from gymctl.errors import ConfigError
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.expand import Plan
from gymctl.rollouts.prompts import Prompt
from gymctl.rollouts.route import Router, Routing
from gymctl.rollouts.skills import skills_ref

Write = Callable[[str], Path]


@pytest.fixture
def prompt_file(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "prompt.yaml"
        path.write_text(text)
        return path

    return write


def desk() -> ServerTable:
    def entry(name: str, kind: ServerKind, **references: str) -> ServerEntry:
        address = Address(kind=kind, implementation="x", host="127.0.0.1", port=1)
        return ServerEntry(name=name, address=address, references=references)

    entries = (
        entry("desk", "responses_api_agents"),
        entry("desk_env", "environment_servers", agent_server="desk"),
    )
    return ServerTable(servers={one.name: one for one in entries})


def plan(path: Path, rows: list[dict[str, Any]], prompt: Prompt | None = None, **options: Any) -> Plan:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    routing = Routing(agent_map={"_default": "desk"}, taskset_servers={"t": "desk_env"})
    return Plan([Source(path, prompt=prompt)], Router(desk(), routing), **options)


def test_a_prompt_fills_the_input_from_fields_and_keeps_the_other_parameters(
    tmp_path: Path, prompt_file: Write
) -> None:
    prompt = Prompt.read(prompt_file("system: Be {tone}.\nuser: '{q} Answer in {{}}, {n:03d}.'\n"))
    rows = [
        {"q": "2+2?", "tone": "brief", "n": 7, "responses_create_params": {"temperature": 0.5}},
        {"q": "3+3?", "tone": "kind", "n": 8},
    ]
    first, second = (attempt.row for attempt in plan(tmp_path / "r", rows, prompt).attempts())
    assert first["responses_create_params"] == {
        "temperature": 0.5,
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "2+2? Answer in {}, 007."},
        ],
    }
    assert second["responses_create_params"]["input"][1]["content"] == "3+3? Answer in {}, 008."


def test_without_a_system_template_there_is_one_message(prompt_file: Write) -> None:
    prompt = Prompt.read(prompt_file("user: '{q}'"))
    made = prompt.applied({"q": "?"})
    assert made["responses_create_params"]["input"] == [{"role": "user", "content": "?"}]


def test_a_row_that_has_an_input_is_refused_with_its_line(tmp_path: Path, prompt_file: Write) -> None:
    prompt = Prompt.read(prompt_file("user: '{q}'"), "mine.yaml")
    rows = [{"q": "?"}, {"q": "?", "responses_create_params": {"input": "hi"}}]
    with pytest.raises(ConfigError, match=r"has an `input` already.*mine.yaml") as caught:
        plan(tmp_path / "r", rows, prompt).check()
    assert caught.value.where == f"{tmp_path / 'r'}:2"


def test_a_field_that_a_row_lacks_is_named_with_those_it_has(tmp_path: Path, prompt_file: Write) -> None:
    prompt = Prompt.read(prompt_file("user: '{question}'"))
    with pytest.raises(ConfigError, match="uses `question`, which this row does not have") as caught:
        plan(tmp_path / "r", [{"q": 1, "a": 2}], prompt).check()
    assert caught.value.hint == "its fields: q, a"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("system: only", "needs `user`"),
        ("user: 3", "needs `user`"),
        ("user: a\nsystem: [b]", "`system` of a prompt file must be a text"),
        ("user: '{q'", "no template"),
        ("user: 'a } b'", "no template"),
        ("user: '{} and {0}'", "names no field"),
        ("user: [", "not YAML"),
    ],
)
def test_a_wrong_prompt_file_is_found_when_it_is_read(prompt_file: Write, text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Prompt.read(prompt_file(text))
    assert what in caught.value.what
    assert "prompt.yaml" in str(caught.value.where)


@given(st.text(), st.text())
def test_any_text_of_a_field_arrives_as_it_is(question: str, literal: str) -> None:
    doubled = literal.replace("{", "{{").replace("}", "}}")
    made = Prompt("p", f"{doubled}{{q}}").applied({"q": question})
    assert made["responses_create_params"]["input"][0]["content"] == literal + question


def test_equal_lines_under_two_prompts_are_two_tasks(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text('{"q": 1}\n')
    sources = [Source(path, prompt=Prompt("a", "{q}")), Source(path, prompt=Prompt("b", "Now {q}"))]
    made = Plan(sources, Router(desk(), Routing(agent_map={"_default": "desk"})))
    assert [attempt.rollout_id for attempt in made.attempts()] == ["0-0", "1-0"]


def test_a_materialized_row_takes_neither_prompt_nor_skills(tmp_path: Path) -> None:
    rows = [{"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}}]
    with pytest.raises(ConfigError, match="`prompt_config` cannot change a row that names a taskset"):
        plan(tmp_path / "r", rows, Prompt("p", "hi")).check()
    with pytest.raises(ConfigError, match="`skills` cannot change a row that names a taskset"):
        plan(tmp_path / "r", rows, skills={"path": "s"}).check()


def test_skills_are_stamped_with_the_hash_of_all_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    for name, text in {
        "b/SKILL.md": "---\nname: bee\ndescription: stings\nmetadata:\n  version: 1.10\n---\nBody\n",
        "a/SKILL.md": "no front matter\n",
        "a/run.sh": "true\n",
        "a.txt": "loose",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    names = ("a.txt", "a/SKILL.md", "a/run.sh", "b/SKILL.md")
    joined = b"".join(name.encode() + b"\0" + (folder / name).read_bytes() + b"\0" for name in names)
    stamp = skills_ref(folder)
    assert stamp == {
        "path": str(folder),
        "hash": sha256(joined).hexdigest()[:12],
        "skills": [
            {"name": "a", "description": None, "version": None},
            {"name": "bee", "description": "stings", "version": "1.10"},
        ],
    }
    rows = [{"responses_create_params": {"input": "hi"}}]
    (attempt,) = plan(tmp_path / "r", rows, skills=stamp).attempts()
    assert attempt.row["skills_ref"] == stamp


@pytest.mark.parametrize("make", [lambda folder: None, lambda folder: folder.mkdir()])
def test_a_folder_without_skills_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    folder = tmp_path / "skills"
    make(folder)
    with pytest.raises(ConfigError) as caught:
        skills_ref(folder)
    assert caught.value.where == str(folder)
