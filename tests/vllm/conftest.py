"""vllm_model against a real vLLM: `make test-vllm`. Not part of the test run: the engine takes gigabytes.

GYMCTL_VLLM_PYTHON and GYMCTL_VLLM_MODEL (a folder) start one here; GYMCTL_VLLM_URL is one that runs with that
model, served as `tiny`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

collect_ignore_glob = [] if {"GYMCTL_VLLM_URL", "GYMCTL_VLLM_PYTHON"} & set(os.environ) else ["test_*.py"]

START_SECONDS = 900
# Threads that spin at barriers ruin a machine with few cores.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
# The model neither thinks nor calls tools by itself: the parsers are what is tried.
OPTIONS = (
    *("--served-model-name", "tiny", "--max-model-len", "2048", "--max-num-seqs", "4"),
    *("--dtype", "bfloat16", "--enforce-eager", "--enable-auto-tool-choice"),
    *("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"),
)


@pytest.fixture(scope="session")
def vllm_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if url := os.environ.get("GYMCTL_VLLM_URL"):
        yield url
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "log"
    command = [os.environ["GYMCTL_VLLM_PYTHON"], "-m", "vllm.entrypoints.openai.api_server", *OPTIONS]
    command += ["--model", os.environ["GYMCTL_VLLM_MODEL"], "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=file, stderr=file)
    try:
        _wait(f"http://127.0.0.1:{port}/v1/models", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"vLLM did not start: {log.read_text(errors='replace')[-3000:]}")
