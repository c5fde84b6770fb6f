"""push, bundle, unbundle and `eval FILE.gymb`, as far as they come without an engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fakes import bundles
from fakes.program import gymctl


def test_dry_run_says_what_is_inside_and_does_nothing(tmp_path: Path) -> None:
    file = bundles.make(tmp_path)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "DOCKER_HOST": "tcp://127.0.0.1:1"}
    done = gymctl("unbundle", file, "--dry-run", "--json", cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["benchmark"], told["folder"]) == ("weather", None)
    assert [image["name"] for image in told["images"]] == list(bundles.NAMES)
    assert bundles.ROWS in [entry["path"] for entry in told["files"]]
    assert not (tmp_path / "cache").exists()
    done = gymctl("unbundle", file, "--dry-run", cwd=tmp_path, environ=environ)
    assert "resources_servers/weather  linux/amd64" in done.stdout
    assert f"gymctl eval {file} --model-type NAME" in done.stderr


def test_a_damaged_file_is_refused_before_the_engine_is_asked(tmp_path: Path) -> None:
    file = bundles.make(tmp_path)
    data = bytearray(file.read_bytes())
    data[data.index(b'{"id": 1}')] ^= 1
    file.write_bytes(data)
    environ = {"DOCKER_HOST": "tcp://127.0.0.1:1"}
    for arguments in (("unbundle", file), ("eval", file, "--model-type", "openai_model"), ("up", file)):
        done = gymctl(*arguments, cwd=tmp_path, environ=environ)
        assert done.returncode == 9, done.stderr
        assert f"{bundles.ROWS} is damaged" in done.stderr
        assert done.stdout == ""


def test_what_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    file = bundles.make(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "no.cassette").write_text("rows\n")
    os.mkfifo(tmp_path / "pipe")
    cases = {
        ("unbundle", file, "--to", tmp_path / "there"): (2, "the folder is there already"),
        ("unbundle", tmp_path / "none" / "x.gymb"): (2, "hint: `gymctl bundle NAME` writes one"),
        ("eval", file.with_name(f"a{file.name}"), "--model-type", "openai_model"): (
            2,
            f"mean `{file.name}`?",
        ),
        ("verify", "images.lock.json"): (2, "there is no lock file"),
        ("up", "weather", "--locked", "--dry-run"): (2, "there is no lock file"),
        ("bundle", "weather", "--output", tmp_path / "none" / "x.gymb"): (3, "the folder of the bundle"),
        ("bundle", "weather", "--output", tmp_path / "there"): (2, "a bundle is a file"),
        ("bundle", "weather", "--output", tmp_path / "pipe"): (2, "and this is a device, a pipe or a socket"),
        ("bundle", "weather", "--cassette", tmp_path / "none"): (3, "the cassette cannot be read"),
        ("bundle", "weather", "--cassette", tmp_path / "no.cassette"): (3, "no.cassette"),
        ("eval", file, "other.gymb"): (2, "one benchmark from a registry or a bundle at a time"),
    }
    for arguments, (code, says) in cases.items():
        done = gymctl(*arguments, cwd=tmp_path)
        assert (done.returncode, says in done.stderr) == (code, True), f"{arguments}: {done.stderr}"


def test_dry_run_of_push_names_what_would_go(tmp_path: Path) -> None:
    environ = {"DOCKER_HOST": "tcp://127.0.0.1:1"}
    place = ("--registry", "localhost:1/bench", "--dry-run", "--json")
    done = gymctl(
        "push", "arithmetic", "--model-type", "llama_cpp_model", *place, cwd=tmp_path, environ=environ
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    images = [image["repository"] for image in told["images"]]
    assert images[0] == "localhost:1/bench/base"
    names = {name.rpartition("/")[2] for name in images}
    assert {"resources-reasoning-tasks", "model-openai-model", "model-llama-cpp-model"} <= names
    assert told["benchmark"]["reference"] == "localhost:1/bench/arithmetic:latest"
    assert list(tmp_path.iterdir()) == []


def test_model_beside_one_of_the_benchmarks_own_is_refused(tmp_path: Path) -> None:
    place = ("--registry", "localhost:1/bench", "--dry-run")
    done = gymctl("push", "weather", "--model-type", "openai_model", *place, cwd=tmp_path)
    assert done.returncode == 2
    assert "a model server of its own, scripted_model" in done.stderr


def test_link_that_leads_out_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "here/benchmarks/tool"
    folder.mkdir(parents=True)
    (tmp_path / "private").write_text("x")
    (folder / "config.yaml").write_text("config_paths: [benchmarks/weather/config.yaml]\n")
    (folder / "inside.yaml").symlink_to("config.yaml")
    (folder / "outside").symlink_to(tmp_path / "private")
    arguments = ("push", "tool", "--registry", "localhost:1/bench", "--dry-run", "--json")
    done = gymctl(*arguments, cwd=tmp_path / "here")
    assert done.returncode == 0, done.stderr
    assert "search roots; what is there travels: benchmarks/tool/outside\n" in done.stderr
