"""Where things are: the bundled folders (checkout or wheel), a project's folder, the files of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def bundled() -> Path:
    """The folder that holds server_images/, templates/, compose/, benchmarks/, Dockerfile.base, scripts/.

    In a wheel they travel inside the package; in a checkout they lie beside it.
    """
    inside = PACKAGE / "_bundled"
    return inside if inside.is_dir() else PACKAGE.parent


def install_roots() -> tuple[Path, ...]:
    """The last search roots (CONTRACT 1.6): `benchmarks/…` and `resources_servers/…` resolve under these."""
    return bundled(), bundled() / "server_images"


def cache_dir() -> Path:
    """Per-user cache (environments of the process runtime, staged SDK): $XDG_CACHE_HOME/gymctl."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gymctl"


def benchmarks_dir() -> Path:
    """Benchmarks that were pulled or unbundled. Root's lie beside /root: cassettes and skills are mounted at
    their own place, which no container's user could read there."""
    cache = cache_dir()
    return (Path("/var/cache/gymctl") if cache.is_relative_to("/root") else cache) / "benchmarks"


@dataclass(frozen=True, slots=True)
class ProjectPaths:
    """What a project leaves on disk, mode 0700, below the folder it was started from.

    .gymctl/<project>/
      compose.yaml        the rendered file; runs by hand as long as the parts are there
      images.lock.json    the images that it names
      project.json        name, runtime, head address, server table, pids (process runtime)
      secret              random key that signs session cookies, mode 0600; while it is up
      parts/<service>.json  what each server is told, mode 0600; while it is up
      logs/<server>.log   process runtime only
      lock                held while a command changes the project
      failure.json        why the last start failed, where it did
      in-use              held while an evaluation relies on its servers
    """

    folder: Path

    @classmethod
    def of(cls, project: str, base: Path | None = None) -> ProjectPaths:
        return cls((base or Path.cwd()) / ".gymctl" / project)

    @property
    def compose(self) -> Path:
        return self.folder / "compose.yaml"

    @property
    def images(self) -> Path:
        return self.folder / "images.lock.json"

    @property
    def state(self) -> Path:
        return self.folder / "project.json"

    @property
    def secret(self) -> Path:
        return self.folder / "secret"

    @property
    def parts(self) -> Path:
        return self.folder / "parts"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def use(self) -> Path:
        return self.folder / "in-use"

    def part(self, service: str) -> Path:
        return self.parts / f"{service}.json"


NOT_ROLLOUTS = ("_failures", "_materialized_inputs", "_reward_profiling", "_verdicts")
"""How the names of a run's files end that hold no rollouts with a score."""


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of one run (CONTRACT 9.8), all named after the output.

    runs/x.jsonl                       rollouts, in completion order
    runs/x_materialized_inputs.jsonl   expanded rows as sent, written before the first request
    runs/x_failures.jsonl              rollouts that failed, with their class
    runs/x_aggregate_metrics.json      one object per environment server
    runs/x/                            what only gymctl writes; each file is described where it is written
    """

    rollouts: Path

    def _beside(self, suffix: str) -> Path:
        return self.rollouts.with_name(f"{self.rollouts.stem}{suffix}")

    @property
    def folder(self) -> Path:
        name = self.rollouts.stem if self.rollouts.suffix else f"{self.rollouts.name}-run"
        return self.rollouts.with_name(name)

    @property
    def inputs(self) -> Path:
        return self._beside("_materialized_inputs.jsonl")

    @property
    def passport(self) -> Path:
        return self.folder / "passport.json"

    @property
    def rows(self) -> Path:
        """The digest of each row of the inputs."""
        return self.folder / "rows.sha256"

    @property
    def config(self) -> Path:
        """The resolved configuration, secrets masked."""
        return self.folder / "config.yaml"

    @property
    def compose(self) -> Path:
        return self.folder / "compose.yaml"

    @property
    def lock(self) -> Path:
        """The images that its servers ran."""
        return self.folder / "images.lock.json"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def health(self) -> Path:
        return self.folder / "quality_summary.json"

    @property
    def verdicts(self) -> Path:
        return self.folder / "rollout_verdicts.jsonl"

    @property
    def failures(self) -> Path:
        return self._beside("_failures.jsonl")

    @property
    def aggregate(self) -> Path:
        return self._beside("_aggregate_metrics.json")
