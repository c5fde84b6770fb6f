"""NeMo Gym's own start-up, as NeMo RL, verl and Megatron-LM call it, with an attach file, and a project in
containers whose agents dial the policy model that it starts."""

from __future__ import annotations

from pathlib import Path

import yaml
from fakes.client_environments import client
from fakes.contract import free_port, in_a_thread
from fakes.program import gymctl
from fakes.training import CONFIGS, plan, write_rows
from fakes.vllm_upstream import VLLMUpstream


def test_nemo_gym_with_an_attach_file_sends_rollouts_to_the_project(tmp_path: Path) -> None:
    port, policy = free_port(), free_port()
    project = f"attach-{port}"
    head = f"++head_server.port={port}"
    given = ("--project", project, "--runtime", "compose", "--policy-at", str(policy), "--detach", head)
    one = VLLMUpstream(samples_anew=True, plan=plan)
    try:
        up = gymctl("up", *CONFIGS[1:], *given, cwd=tmp_path)
        assert up.returncode == 0, up.stderr
        made = gymctl("export", "attach", "attach.yaml", cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        pinned = yaml.safe_load((tmp_path / "attach.yaml").read_text())["policy_model"]
        assert pinned == {"responses_api_models": {"vllm_model": {"host": "0.0.0.0", "port": policy}}}
        with in_a_thread(one):
            done = client(
                "nemo_gym_attach",
                *("--head-port", str(free_port()), "--rows", write_rows(tmp_path), "--reward", "1"),
                *("--attach", tmp_path / "attach.yaml", "--engine", one.url),
                environ={"HOME": str(tmp_path)},
            )
    finally:
        gymctl("down", project, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "5 passed, 0 failed, 0 skipped" in done.stdout, done.stdout
    assert one.bodies("/v1/chat/completions")
