"""The published training clients of tests/clients, each in a cached environment of its own.

    done = client("axolotl", "--head-port", "11000", "--rows", "rows.jsonl")

An environment is made once for each lock file, version and Python, and kept beside gymctl's other caches.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import uv

from gymctl.images.secrets import BuildSecrets
from gymctl.paths import cache_dir

DRIVERS = Path(__file__).resolve().parents[1] / "clients"


@dataclass(frozen=True)
class Client:
    alone: str | None
    """A requirement that is installed without its dependencies; what it imports is in the lock file."""
    python: str | None = None
    """The Python that it asks for; it is pure Python, and what is used here runs on older ones, too."""


CLIENTS = {
    "axolotl": Client("axolotl==0.19.0"),
    "nemo_gym": Client("nemo-gym==0.7.0", python="3.13.14"),
    "verifiers": Client(None),
    "evaluator": Client("nemo-evaluator==0.3.0", python="3.12"),
}

SHARED = {"nemo_gym_attach": "nemo_gym"}
"""Drivers that run in the environment of another one."""


def client(
    name: str, *arguments: str | Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the driver of a client to its end."""
    # Without PYTHONPATH and virtual environment of the tests: a client must not find gymctl.
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(_python(SHARED.get(name, name))), str(DRIVERS / f"{name}_client.py"), *map(str, arguments)],
        env={**kept, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _python(name: str) -> Path:
    """The interpreter of a client's environment, which is made where there is none."""
    wanted, lock = CLIENTS[name], DRIVERS / f"{name}.lock"
    facts = (platform.python_version(), platform.machine(), sys.base_prefix, str(wanted))
    key = hashlib.sha256("\0".join(facts).encode() + lock.read_bytes()).hexdigest()[:16]
    target = cache_dir() / "clients" / f"{name}-{key}"
    if not target.is_dir():
        _make(target, wanted, lock)
    return target / "bin" / "python"


def _make(target: Path, wanted: Client, lock: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    install = ("pip", "install", "--no-deps", "--python", str(temporary / "bin" / "python"))
    try:
        _uv("venv", "--relocatable", "--no-python-downloads", "--python", sys.executable, str(temporary))
        _uv(*install, "-r", str(lock))
        if wanted.alone is not None:
            version = ("--python-version", wanted.python) if wanted.python else ()
            _uv(*install, *version, wanted.alone)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _uv(*arguments: str) -> None:
    network = BuildSecrets.of(os.environ)  # the same CA bundle, index and proxies as an image's build
    environ = {**os.environ, **network.network}
    if network.ca is not None:
        environ["SSL_CERT_FILE"] = str(network.ca)
    done = subprocess.run(
        [uv.find_uv_bin(), "--no-config", "--no-progress", *arguments],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
