"""`gymctl verify LOCK|REF` as a table: one line for an image of which nothing is wrong."""

from __future__ import annotations

from gymctl.artefacts.verified import BENCHMARK, SIZE_ONLY
from gymctl.cli.verify_artefact import by_thing
from gymctl.rollouts.findings import Finding, Status

W = "resources_servers/weather"


def part(name: str, status: Status = "ok", detail: str = "") -> Finding:
    return Finding(f"{W} {name}", status, detail, W)


PARTS = [
    part("manifest"),
    part("tag"),
    part("configuration"),
    *[part(f"layer {number}", detail=f"sha256:1, {SIZE_ONLY}") for number in range(1, 4)],
    part("SBOM"),
    part("here", detail="HOST/weather:1"),
    part("here", detail="gymctl/weather:1"),
]


def test_an_image_that_is_right_is_one_line() -> None:
    other = Finding("Dockerfile.base manifest", "ok", "", "Dockerfile.base")
    assert list(by_thing([*PARTS, other])) == [
        (W, "ok", "manifest, tag, configuration, 3 layers (sizes), SBOM · here as 2 names"),
        ("Dockerfile.base", "ok", "manifest"),
    ]


def test_what_is_wrong_is_named_with_what_was_expected() -> None:
    differs = part("layer 2", "differs", "expected 1, found 2")
    [line] = by_thing([part("manifest"), differs])
    assert line == (W, "differs", "layer 2: expected 1, found 2 · ok: manifest")
    lines = list(by_thing([part("manifest"), differs, part("SBOM", "gone", "none is attached")]))
    assert lines == [
        (W, "differs", "ok: manifest"),
        (f"{W} layer 2", "differs", "expected 1, found 2"),
        (f"{W} SBOM", "gone", "none is attached"),
    ]


def test_an_image_that_was_never_pushed_says_so() -> None:
    found = [part("manifest", "not recorded", "it was never pushed"), part("here", detail="gymctl/w:1")]
    assert list(by_thing(found)) == [
        (W, "not recorded", "manifest: it was never pushed · ok: here as 1 name")
    ]


def test_the_files_of_a_benchmark_are_one_line() -> None:
    names = ("manifest", "benchmark.json", "files.tar", "files", "rows of a.jsonl", "rows of b.jsonl")
    found = [Finding(name, "ok", "", BENCHMARK) for name in names]
    assert list(by_thing(found)) == [(BENCHMARK, "ok", "manifest, 2 layers, files, 2 files of rows")]
