"""`datasets:` entries (CONTRACT 1.3)."""

from __future__ import annotations

import pytest

from gymctl.errors import ConfigError

SERVER = (
    "w: {{resources_servers: {{weather_tool: {{entrypoint: app.py, domain: math, datasets: {datasets}}}}}}}\n"
)


def test_datasets_are_found_over_the_search_roots(bench, tmp_path_factory) -> None:
    extra = tmp_path_factory.mktemp("extra")
    (extra / "benchmarks/sums/data").mkdir(parents=True)
    rows = extra / "benchmarks/sums/data/rows.jsonl"
    rows.touch()
    bench.write(
        "a.yaml",
        SERVER.format(
            datasets="[{name: sums, type: benchmark, jsonl_fpath: benchmarks/sums/data/rows.jsonl,"
            " prepare_script: prepare.py, num_repeats: 4},"
            " {name: gone, type: example, jsonl_fpath: gone.jsonl}]"
        ),
    )
    sums, gone = bench.load("a.yaml", search_dir=(str(extra),)).datasets
    assert (sums.declared_by, sums.name, sums.num_repeats, sums.path) == ("w", "sums", 4, rows)
    assert sums.settings["prepare_script"] == "prepare.py"
    assert (gone.path, gone.num_repeats) == (None, 1)


@pytest.mark.parametrize(
    ("datasets", "problem"),
    [
        ("1", "must be a list"),
        ("[1]", "must be a mapping"),
        ("[{type: example, jsonl_fpath: x}]", "needs `name`"),
        ("[{name: x, type: exmple, jsonl_fpath: x}]", "did you mean `example`?"),
        ("[{name: x, type: train, jsonl_fpath: x}]", "needs `license`"),
        ("[{name: x, type: train, jsonl_fpath: x, license: Apache-2.0}]", "did you mean `Apache 2.0`"),
        ("[{name: x, type: benchmark, jsonl_fpath: x}]", "needs `prepare_script`"),
        ("[{name: x, type: example, jsonl_fpath: x, num_repeats: 0}]", "at least 1, got `0`"),
        ("[{name: x, type: benchmark, jsonl_fpath: x, prepare_script: p, agent: a, taskset: t}]", "use one"),
        ("[{name: x, type: example, jsonl_fpath: x, source: {}, gitlab_identifier: {}}]", "use `source`"),
    ],
)
def test_a_wrong_entry_is_told_with_its_line(bench, datasets, problem) -> None:
    bench.write("a.yaml", SERVER.format(datasets=datasets))
    with pytest.raises(ConfigError) as caught:
        bench.load("a.yaml")
    assert problem in caught.value.what
    assert (caught.value.where or "").startswith("a.yaml:1:")


def test_a_benchmark_may_name_a_license_of_any_kind(bench) -> None:
    entry = "[{name: x, type: benchmark, jsonl_fpath: x, prepare_script: p.py, license: CC-BY-4.0}]"
    bench.write("a.yaml", SERVER.format(datasets=entry))
    [dataset] = bench.load("a.yaml").datasets
    assert dataset.settings["license"] == "CC-BY-4.0"
