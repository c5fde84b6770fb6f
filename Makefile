# gymctl: what a newcomer runs. Each target does its own set-up; `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-peer test-side-by-side test-vllm engine lint lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## set everything up and evaluate a small real model on real tasks
	@scripts/setup.sh run
	@$(BIN)/gymctl eval arithmetic --model-type llama_cpp_model --limit 20 -k 2 --output results/demo.jsonl --fresh

test: ## set everything up and run all tests (ARGS="tests/unit -k name" selects)
	@scripts/test.sh $(ARGS)

test-peer: ## every server of NeMo Gym in containers, held to its recorded rollouts (opt-in: hours)
	@scripts/setup.sh dev
	@PYTHONPATH=tests $(BIN)/python -m peer.catalogue --page docs/compatibility.md $(ARGS)

test-side-by-side: ## NeMo Gym and gymctl on the same rows, compared field by field (opt-in: minutes)
	@scripts/setup.sh dev
	@PYTHONPATH=tests $(BIN)/python -m peer.side_by_side $(ARGS)

test-vllm: ## vllm_model against a real vLLM on the CPU (opt-in: 3.4 GB are installed once)
	@scripts/test_vllm.sh $(ARGS)

engine: ## install and start a Docker engine (Debian or Ubuntu, as root)
	@scripts/ensure_docker.sh

lint: ## style and types only
	@scripts/setup.sh dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

lock: ## refresh the locked versions (development and container packages)
	@scripts/setup.sh dev
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --extra dev --no-header --no-annotate --no-emit-package gymctl pyproject.toml -o scripts/constraints.txt
	@scripts/lock_base.sh

clean: ## remove the environment and caches of this checkout
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist
