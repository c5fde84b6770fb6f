"""The tutorial is run as it is written: its files, its commands, the numbers it promises."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fakes.program import gymctl

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
FILE = re.compile(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```$", re.S | re.M)
REPLACEMENT = re.compile(r"^```python-replace\n(.*?)^```$", re.S | re.M)
COMMAND = re.compile(r"^\$ gymctl (.*)$", re.M)


def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    for name, content in FILE.findall(text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    first, second = COMMAND.findall(text)

    fooled = gymctl(*shlex.split(first), "--runtime", "process", cwd=tmp_path)
    assert fooled.returncode == 0, fooled.stderr
    promised = next(line for line in text.splitlines() if line.startswith(" reward "))
    assert promised in fooled.stdout

    server = tmp_path / "resources_servers" / "forecast" / "app.py"
    code = server.read_text(encoding="utf-8")
    start, end = code.index("    async def verify"), code.index("\n\napp = ")
    [method] = REPLACEMENT.findall(text)
    server.write_text(code[:start] + method + code[end:], encoding="utf-8")
    mended = gymctl(*shlex.split(second), "--runtime", "process", cwd=tmp_path)
    assert mended.returncode == 0, mended.stderr
    assert "reward      0.667" in mended.stdout
    assert "0.667" in text

    (tmp_path / "rows.jsonl").rename(tmp_path / "benchmarks" / "forecast" / "rows.jsonl")
    named = gymctl(
        *("eval", "forecast", "--model-type", "scripted_model", "-o", "results/named.jsonl"),
        *("--runtime", "process"),
        cwd=tmp_path,
    )
    assert named.returncode == 0, named.stderr
    assert "reward      0.667" in named.stdout
    packed = gymctl("push", "forecast", "--registry", "localhost:1/team", "--dry-run", cwd=tmp_path)
    assert packed.returncode == 0, packed.stderr
    assert "gymctl bundle forecast" in text
