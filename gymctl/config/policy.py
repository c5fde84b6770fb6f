"""The policy model: how its server is called, and what a choice of model sets."""

from __future__ import annotations

POLICY = "policy_model"
TRAINED = "vllm_model"
"""The implementation that trainers start in its place."""
VALUES = ("policy_base_url", "policy_api_key", "policy_model_name")
"""Keys that the flags of a model give."""
