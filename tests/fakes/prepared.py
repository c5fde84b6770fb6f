"""What tests of prepare scripts start from: a dataset that a script makes, a package that it needs."""

from __future__ import annotations

from pathlib import Path

_CONFIG = """\
sums:
  resources_servers:
    weather:
      entrypoint: app.py
      domain: agent
      datasets:
      - name: sums
        type: benchmark
        jsonl_fpath: {rows}
        prepare_script: {script}
"""
_PROJECT = '[project]\nname = "tiny-words"\nversion = "1"\n[tool.setuptools]\npy-modules = ["tiny_words"]\n'


def config_of(script: str, rows: str, dependencies: str | None = None) -> str:
    """A server with one benchmark. dependencies: a YAML list of requirements for pip."""
    needs = f"        prepare_dependencies: {dependencies}\n" if dependencies is not None else ""
    return _CONFIG.format(rows=rows, script=script) + needs


def add_package(folder: Path) -> None:
    """A package in a folder of its own: `tiny_words.WORD` is "tiny"."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PROJECT)
    (folder / "tiny_words.py").write_text('WORD = "tiny"\n')
