"""What a benchmark consists of: every file by place and digest, the same bytes every time, no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.contents import unpacked

from gymctl.artefacts import content as contents
from gymctl.artefacts import kept
from gymctl.artefacts.content import Content, Item, relocked
from gymctl.artefacts.gather import gather
from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.errors import ConfigError, IntegrityError, UsageError
from gymctl.images.context import server_context
from gymctl.images.lock import Lock, LockedImage

SERVER = """
tool:
  resources_servers:
    tool:
      entrypoint: app.py
      domain: math
      {extra}
tool_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      model_server: {{type: responses_api_models, name: policy_model}}
      resources_server: {{type: resources_servers, name: tool}}
      datasets:
        - name: rows
          type: benchmark
          jsonl_fpath: {rows}
          prepare_script: benchmarks/tool/prepare.py
tool_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {{type: responses_api_agents, name: tool_agent}}
"""
ROWS = "benchmarks/tool/data/rows.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of an author: a benchmark with a server of its own."""
    write(tmp_path, "benchmarks/tool/config.yaml", SERVER.format(rows=ROWS, extra=""))
    write(tmp_path, "benchmarks/tool/prepare.py", "def prepare(): ...\n")
    write(tmp_path, ROWS, '{"id": 1}\n{"id": 2}\n')
    write(tmp_path, "benchmarks/tool/data/scratch.bin", "of no dataset")
    write(tmp_path, "resources_servers/tool/app.py", "from gymctl.servers.resources import ResourcesServer\n")
    write(tmp_path, "resources_servers/tool/requirements.txt", "")
    write(tmp_path, "resources_servers/tool/run.sh", "#!/bin/sh\n").chmod(0o755)
    write(tmp_path, "resources_servers/tool/env.yaml", "openai_api_key: sk-aaaaaaaaaaaa1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, place: str, text: str) -> Path:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def packed(lock: Lock | None = None, **chosen: Any) -> Content:
    selection = Selection(needs_model=False, **(chosen or {"benchmark": ("tool",)}))
    return gather(load(selection), selection, lock=lock)


def test_content_holds_config_rows_and_server_folders(folder: Path) -> None:
    content = packed()
    assert (content.name, content.manifest.benchmark, content.manifest.data) == ("tool", "tool", (ROWS,))
    places = set(content.files)
    assert {ROWS, "benchmarks/tool/config.yaml", "benchmarks/tool/prepare.py"} <= places
    assert {"resources_servers/tool/app.py", "responses_api_agents/simple_agent/app.py"} <= places
    assert "environment_servers/legacy_agent/app.py" in places
    assert not {"benchmarks/tool/data/scratch.bin", "resources_servers/tool/env.yaml"} & places
    assert content.files["resources_servers/tool/run.sh"].is_executable


def test_a_model_server_of_its_own_is_told_and_a_stand_in_is_none(folder: Path) -> None:
    assert packed().manifest.model == ""
    brought = packed(benchmark=("weather",))
    assert brought.manifest.model == relocked(brought, Lock()).manifest.model == "scripted_model"
    assert packed(benchmark=("weather/live",)).manifest.model == ""


def test_unpacked_server_folder_has_the_digest_that_the_lock_says(folder: Path, tmp_path: Path) -> None:
    target = unpacked(packed(), tmp_path / "unpacked")
    ours, theirs = folder / "resources_servers/tool", target / "resources_servers/tool"
    assert server_context(ours).digest() == server_context(theirs).digest()


def test_unpacked_content_is_a_search_root_that_selects_the_same(folder: Path, tmp_path: Path) -> None:
    target = unpacked(packed(), tmp_path / "unpacked")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    selection = Selection(benchmark=("tool",), search_dir=(str(target),), needs_model=False)
    config = load(selection, cwd=elsewhere)
    assert config.servers["tool"].folder == target / "resources_servers/tool"
    assert config.datasets[0].path == target / ROWS
    again = gather(config, selection)
    assert again.manifest.passport == packed().manifest.passport


def test_same_inputs_give_the_same_bytes_and_one_changed_byte_another_digest(folder: Path) -> None:
    first = packed()
    assert packed().digest == first.digest
    write(folder, ROWS, '{"id": 1}\n{"id": 3}\n')
    changed = packed()
    assert changed.digest != first.digest
    assert changed.manifest.passport.rows != first.manifest.passport.rows
    assert changed.manifest.passport.config == first.manifest.passport.config


def test_lock_is_a_file_and_its_images_stand_in_the_passport_template(folder: Path) -> None:
    image = LockedImage(
        name="resources_servers/tool",
        repository="gymctl/resources-tool",
        tag="1",
        id="sha256:" + "a" * 64,
        platform="linux/amd64",
        inputs="b" * 64,
        base="Dockerfile.base",
    )
    lock = Lock().with_images([image])
    content = packed(lock)
    assert content.files["images.lock.json"].data.decode() == lock.text()
    assert content.manifest.passport.images == {"resources_servers/tool linux/amd64": image.id}


def test_file_of_a_user_becomes_a_benchmark_that_includes_it(folder: Path, tmp_path: Path) -> None:
    write(folder, "mine.yaml", "config_paths: [benchmarks/tool/config.yaml]\ntool_agent: {}\n")
    content = packed(config=("mine.yaml",))
    assert content.manifest.benchmark == "mine"
    assert b"- 'mine.yaml'" in content.files["benchmarks/mine/config.yaml"].data
    target = unpacked(content, tmp_path / "unpacked")
    selection = Selection(benchmark=("mine",), search_dir=(str(target),), needs_model=False)
    assert load(selection, cwd=target).datasets[0].path == target / ROWS


def test_file_outside_of_every_root_goes_into_the_folder_of_the_benchmark(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = write(
        tmp_path_factory.mktemp("outside"), "far.yaml", "config_paths: [benchmarks/tool/config.yaml]\n"
    )
    content = packed(config=(str(outside),))
    assert content.manifest.benchmark == "far/far"
    assert content.files["benchmarks/far/far.yaml"].path == outside


def test_prompt_that_settings_name_travels(folder: Path) -> None:
    write(folder, "prompts/judge.yaml", "user: x\n")
    config = SERVER.format(rows=ROWS, extra="judge_prompt_fpath: prompts/judge.yaml")
    write(folder, "benchmarks/tool/config.yaml", config)
    assert "prompts/judge.yaml" in packed().files


def test_rows_that_were_not_made_are_refused_with_the_command(folder: Path) -> None:
    (folder / ROWS).unlink()
    with pytest.raises(ConfigError, match="gymctl dataset prepare"):
        packed()


def test_rows_at_an_absolute_path_are_refused(folder: Path) -> None:
    write(folder, "benchmarks/tool/config.yaml", SERVER.format(rows=folder / ROWS, extra=""))
    with pytest.raises(ConfigError, match="cannot travel"):
        packed()


def test_mounts_and_overrides_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="overrides"):
        packed(benchmark=("tool",), overrides=("++tool_agent.responses_api_agents.simple_agent.max_steps=1",))
    config = SERVER.format(rows=ROWS, extra="mounts: [/data/x]")
    write(folder, "benchmarks/tool/config.yaml", config)
    with pytest.raises(ConfigError, match="mounts"):
        packed()


@pytest.mark.parametrize("place", ["resources_servers/tool/app.py", ROWS, "benchmarks/tool/README.md"])
def test_secret_of_env_yaml_is_refused_by_the_name_of_its_file(folder: Path, place: str) -> None:
    write(folder, "env.yaml", "policy_api_key: planted-value\n")
    write(folder, place, '{"text": "planted-value"}\n')
    with pytest.raises(ConfigError) as error:
        packed()
    assert error.value.details == (place,)
    assert "planted-value" not in str(error.value)


def test_key_in_the_config_itself_is_refused_and_a_plain_word_is_not(folder: Path) -> None:
    write(folder, "benchmarks/tool/config.yaml", SERVER.format(rows=ROWS, extra="score_key: correctness"))
    assert packed()
    extra = "search_api_key: ${{oc.env:GYMCTL_TEST_UNSET,MISSING}}".replace("{{", "{").replace("}}", "}")
    write(folder, "benchmarks/tool/config.yaml", SERVER.format(rows=ROWS, extra=extra))
    assert packed()
    extra = "search_api_key: ${{oc.env:GYMCTL_TEST_UNSET_4711,EMPTY}}".replace("{{", "{").replace("}}", "}")
    write(folder, "benchmarks/tool/config.yaml", SERVER.format(rows=ROWS, extra=extra))
    assert packed()
    extra = "search_api_key: sk-planted-1234567"
    write(folder, "benchmarks/tool/config.yaml", SERVER.format(rows=ROWS, extra=extra))
    with pytest.raises(ConfigError, match=r"benchmarks/tool/config\.yaml"):
        packed()


def test_secret_across_two_chunks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_CHUNK", 10)
    path = write(tmp_path, "file", "12345678secret")
    assert Item.of(path).holds(frozenset({b"8secret"}))
    assert not Item.of(path).holds(frozenset({b"secrets"}))


@pytest.mark.parametrize("place", ["resources_servers/tool/app.py", ROWS, "benchmarks/tool/config.yaml"])
def test_altered_file_of_an_unpacked_folder_is_named(folder: Path, tmp_path: Path, place: str) -> None:
    content = packed()
    target = unpacked(content, tmp_path / "unpacked")
    assert contents.check_folder(target, content.digest).name == "tool"
    path = target / place
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match=place):
        contents.check_folder(target, content.digest)


def test_file_that_is_missing_added_linked_or_of_another_mode_is_named(folder: Path, tmp_path: Path) -> None:
    target = unpacked(packed(), tmp_path / "unpacked")
    script = target / "resources_servers/tool/run.sh"
    added = write(target, "resources_servers/tool/more.py", "")
    with pytest.raises(IntegrityError, match=r"more\.py is no part"):
        contents.check_folder(target)
    added.unlink()
    script.chmod(0o644)
    with pytest.raises(IntegrityError, match=r"run\.sh changed its mode"):
        contents.check_folder(target)
    script.unlink()
    with pytest.raises(IntegrityError, match=r"run\.sh cannot be read"):
        contents.check_folder(target)
    script.symlink_to(folder / "resources_servers/tool/run.sh")
    with pytest.raises(IntegrityError, match=r"run\.sh is a link"):
        contents.check_folder(target)


@pytest.mark.parametrize("place", ["../x", "/etc/passwd", "a/../../x", "a//b", "", "a\\b", "a\nb", "./a"])
def test_place_outside_of_the_folder_is_refused(place: str) -> None:
    text = json.dumps(
        {"name": "x", "benchmark": "x", "files": [{"path": place, "sha256": "0" * 64, "size": 0}]}
    )
    with pytest.raises(IntegrityError):
        contents.parse(text.encode(), "there")


def test_broken_and_newer_manifests_are_refused() -> None:
    with pytest.raises(IntegrityError, match="broken"):
        contents.parse(b"{", "there")
    for more in (b'"benchmark": "x"', b'"files": {"a": 1}'):
        with pytest.raises(IntegrityError, match="newer"):
            contents.parse(b'{"name": "x", ' + more + b', "schema_version": 9}', "there")


def test_file_that_changes_while_it_is_packed_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, "file", "before")
    item = Item.of(path)
    path.write_text("after!")
    with pytest.raises(IntegrityError, match="changed while"):
        list(item.chunks())


def test_unpacked_benchmarks_of_root_lie_where_the_user_of_a_container_can_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest = f"sha256:{'0' * 64}"
    monkeypatch.setenv("XDG_CACHE_HOME", "/root/.cache")
    assert kept.places(digest)[1] == Path(f"/var/cache/gymctl/benchmarks/{'0' * 64}")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/someone/.cache")
    assert kept.places(digest)[1] == Path(f"/home/someone/.cache/gymctl/benchmarks/{'0' * 64}")
