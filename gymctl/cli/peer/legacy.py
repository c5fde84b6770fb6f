"""The older command names of the peer, `ng_X` and `nemo_gym_X`: one program each, arguments are overrides."""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("env", "start"),
    "status": ("env", "status"),
    "dump_config": ("env", "resolve"),
    "collect_rollouts": ("eval", "run", "--no-serve"),
    "e2e_collect_rollouts": ("eval", "run"),
    "aggregate_rollouts": ("eval", "aggregate"),
    "reward_profile": ("eval", "profile"),
    "prepare_benchmark": ("eval", "prepare"),
    "prepare_data": ("dataset", "collate"),
    "materialize_prompts": ("dataset", "render"),
    "version": ("--version",),
    "help": ("--help",),
}
PREFIXES = ("ng_", "nemo_gym_")
PROGRAMS = tuple(f"{prefix}{name}" for prefix in PREFIXES for name in COMMANDS)


def command(program: str) -> tuple[str, ...]:
    """What `gym` is to be told instead of a legacy program."""
    prefix = next(prefix for prefix in PREFIXES if program.startswith(prefix))
    return COMMANDS[program.removeprefix(prefix)]
