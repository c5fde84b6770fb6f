"""Collating, drivers, prepare scripts and rendering as a user runs them, on local processes."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from fakes.prepared import add_package, config_of
from fakes.program import gymctl, processes_below, read_lines

DRIVER = """\
import json
import urllib.request

async def collect(config, document):
    rows = [json.loads(line) for line in open(config.input_jsonl_fpath)]
    block = document["weather_environment_server"]["environment_servers"]["legacy_agent"]
    with urllib.request.urlopen(f"http://{block['host']}:{block['port']}/readyz") as answer:
        facts = {"rows": len(rows), "ready": answer.status, "limit": config.limit}
    with open(config.output_jsonl_fpath, "w") as file:
        json.dump(facts, file)
"""
PREPARE = """\
import json
from pathlib import Path

import tiny_words

def prepare(*, size: int = 2):
    path = Path(__file__).resolve().parent / "rows.jsonl"
    rows = [{"responses_create_params": {"input": tiny_words.WORD}} for _ in range(size)]
    path.write_text("".join(json.dumps(row) + "\\n" for row in rows))
    print("made", size)
    return RETURNED
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def evaluate(folder: Path, *arguments: str) -> Any:
    fixed = ("eval", "weather", "--runtime", "process", f"++head_server.port={free_port()}")
    return gymctl(*fixed, *arguments, cwd=folder, timeout=180)


def test_a_collated_run_reads_its_own_copy_of_the_declared_rows(tmp_path: Path) -> None:
    done = evaluate(
        tmp_path, "--collate", "--split", "benchmark", "-o", "runs/x.jsonl", "--limit", "2", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rollouts"]["scored"] == 2
    prepared = tmp_path / "runs" / "x" / "preprocessed_datasets"
    assert {path.name for path in prepared.iterdir()} == {
        "benchmark.jsonl",
        "benchmark_metrics.json",
        "weather_prepare.jsonl",
        "weather_metrics.json",
    }
    rows = read_lines(prepared / "benchmark.jsonl")
    assert len(rows) == 20
    sources = {row["task_source"] for row in rows}
    records = read_lines(tmp_path / "runs" / "x.jsonl")
    assert {record["task_source"] for record in records} == sources
    assert processes_below(tmp_path) == []


def test_a_driver_makes_the_rollouts_once_the_servers_answer(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DRIVER)
    driver = "++rollout_collection_driver=mine:collect"
    done = evaluate(tmp_path, driver, "-o", "x.jsonl", "--limit", "3")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "x.jsonl").read_text()) == {"rows": 20, "ready": 200, "limit": 3}
    assert "mine:collect has returned" in done.stderr
    assert processes_below(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--collate", "--no-serve"), 2, "--collate and --no-serve do not go together"),
        (("--collate",), 2, "missing required configuration: output_jsonl_fpath, split"),
        (("--collate", "--split", "train", "-o", "x.jsonl"), 1, "declares no dataset of type train"),
        (("--collate", "--split", "example", "-o", "x.jsonl"), 1, "`split` must be"),
        (
            ("--collate", "--split", "benchmark", "-o", "x.jsonl", "-i", "y.jsonl"),
            1,
            "there can be no input file",
        ),
        (("--split", "train", "-o", "x.jsonl"), 1, "declares no dataset of type train"),
        (("++rollout_collection_driver=nowhere:f",), 1, "there is no module `nowhere`"),
        (("++rollout_collection_driver=json",), 1, "must look like"),
        (("++rollout_collection_driver=json:loads",), 1, "`loads` of `json` is no `async def`"),
        (("++rollout_collection_driver=json:nothing",), 1, "`nothing` of `json` is not there"),
    ],
)
def test_what_a_prepared_run_needs_is_told_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = evaluate(tmp_path, *arguments)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / ".gymctl").exists()
    assert not (tmp_path / "x.jsonl").exists()


def write_script(folder: Path, returned: str = "str(path)") -> str:
    package = folder / "package"
    add_package(package)
    (folder / "mine").mkdir()
    (folder / "mine" / "prepare.py").write_text(PREPARE.replace("RETURNED", returned))
    (folder / "a.yaml").write_text(config_of("mine/prepare.py", "mine/rows.jsonl", f"[{package}]"))
    return str(folder / "mine" / "rows.jsonl")


def test_prepare_scripts_run_with_their_packages_and_arguments(tmp_path: Path) -> None:
    rows = write_script(tmp_path)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    prepare = ("dataset", "prepare", "a.yaml")
    missing = gymctl("dataset", "collate", "a.yaml", "--output-dir", "out", cwd=tmp_path)
    assert (missing.returncode, "gymctl dataset prepare" in missing.stderr) == (1, True)
    done = gymctl(*prepare, "++prepare_script_args.size=3", cwd=tmp_path, environ=environ)
    assert (done.returncode, done.stdout) == (0, f"{rows}\n"), done.stderr
    assert [row["responses_create_params"]["input"] for row in read_lines(Path(rows))] == ["tiny"] * 3

    cached = gymctl(*prepare, "++use_cached_prepared_benchmarks=true", cwd=tmp_path, environ=environ)
    assert (cached.returncode, len(read_lines(Path(rows)))) == (0, 3), cached.stderr
    wrong = gymctl(*prepare, "++prepare_script_args.sise=3", cwd=tmp_path, environ=environ)
    assert (wrong.returncode, "`prepare` takes no `sise`" in wrong.stderr) == (1, True)

    collated = gymctl("dataset", "collate", "a.yaml", "--output-dir", "out", "--json", cwd=tmp_path)
    assert json.loads(collated.stdout)["files"]["benchmark"]["rows"] == 3
    (tmp_path / "mine" / "prepare.py").write_text(PREPARE.replace("RETURNED", "'rows.jsonl'"))
    relative = gymctl(*prepare, cwd=tmp_path, environ=environ)
    assert (relative.returncode, "must return the absolute path" in relative.stderr) == (1, True)
    (tmp_path / "mine" / "prepare.py").write_text("def prepare():\n    raise ValueError('no luck')\n")
    failed = gymctl(*prepare, cwd=tmp_path, environ=environ)
    assert (failed.returncode, "no luck" in failed.stderr) == (4, True)


def test_rendered_rows_have_their_input_and_name_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"q": "2+2"}\n\n{"q": "3+3"}\n')
    (tmp_path / "p.yaml").write_text("system: Brief.\nuser: '{q}?'\n")
    asked = ("-i", "rows.jsonl", "--prompt-config", "p.yaml", "-o", "out/r.jsonl")
    done = gymctl("dataset", "render", *asked, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "out/r.jsonl\n"), done.stderr
    first, second = read_lines(tmp_path / "out" / "r.jsonl")
    assert first == {
        "q": "2+2",
        "responses_create_params": {
            "input": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "2+2?"}]
        },
        "prompt_config_used": "p.yaml",
    }
    assert second["responses_create_params"]["input"][1]["content"] == "3+3?"
    (tmp_path / "rows.jsonl").write_text('{"q": "2+2"}\n{"r": "3+3"}\n')
    wrong = gymctl("dataset", "render", *asked, cwd=tmp_path)
    assert (wrong.returncode, "rows.jsonl:2" in wrong.stderr) == (1, True)
    assert len(read_lines(tmp_path / "out" / "r.jsonl")) == 2
    missing = gymctl("dataset", "render", "-i", "rows.jsonl", cwd=tmp_path)
    assert "missing required configuration: prompt_config, output_jsonl_fpath" in missing.stderr


def test_the_schema_of_task_data_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "resources_servers" / "mine"
    folder.mkdir(parents=True)
    assert "has no task_data.py" in gymctl("dataset", "schema", "mine", cwd=tmp_path).stderr
    (folder / "task_data.py").write_text(
        "from pydantic import BaseModel\nclass TaskData(BaseModel):\n    n: int\n"
    )
    done = gymctl("dataset", "schema", "mine", cwd=tmp_path)
    assert json.loads(done.stdout)["properties"] == {"n": {"title": "N", "type": "integer"}}
