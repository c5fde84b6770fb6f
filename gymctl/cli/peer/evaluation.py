"""`gym eval …`: rollouts, their profile, shards, and scoring again."""

from __future__ import annotations

from gymctl.cli.peer import health
from gymctl.cli.peer.flags import attribute, is_true, parse, selectors, settings
from gymctl.errors import UsageError

SETTINGS = {
    "--output": "--output",
    "--input": "--input",
    "--split": "--split",
    "--limit": "--limit",
    "--num-repeats": "--repeats",
    "--concurrency": "--concurrency",
    "--agent": "--agent",
    "--prompt-config": "--prompt-config",
    "--temperature": "--temperature",
    "--top-p": "--top-p",
    "--max-output-tokens": "--max-output-tokens",
}
"""The peer's flags with a value for an evaluation, and ours."""
SWITCHES = {
    "--no-serve": "--no-serve",
    "--interleave-repeats": "--interleave-repeats",
    "--disable-aggregation": "++disable_aggregation=true",
    "--no-health-check": "++disable_health_check=true",
    "--resume": "++resume_from_cache=true",
}
"""The peer's flags without one, and what we call them."""
REVERIFY_SAME = ("--concurrency", "--limit")
REVERIFY_SWITCHES = {
    "--force": ("--force",),
    "--overwrite": ("--overwrite",),
    "--resume": ("--resume",),
    "--append": ("--append",),
    "--judge-failed-only": ("--only", "judge-failed"),
    "--disable-aggregation": ("--disable-aggregation",),
}


def run(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments, once=(*SETTINGS, *health.FLAGS), switches=SWITCHES)
    if known.help:
        return ["eval", "--help"]
    settings = {flag: getattr(known, attribute(flag)) for flag in SETTINGS}
    if settings["--limit"] == "0":
        settings["--limit"] = None  # "all" for the peer; our flag means what it says
    given = [(SETTINGS[flag], value) for flag, value in settings.items() if value is not None]
    return [
        "eval",
        "--fresh-by-default",  # the peer replaces results unless it is told to resume
        *("--progress", "text"),
        *([] if known.no_serve else ["--collate"]),
        *selectors(known),
        *(part for pair in given for part in pair),
        *(ours for flag, ours in SWITCHES.items() if getattr(known, attribute(flag))),
        *health.of_run(known),
        *tokens,
    ]


def profile(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments, once=("--inputs", "--rollouts"))
    if known.help:
        return ["metrics", "--help"]
    said = settings(
        command, tokens, ("materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath"), "allow_partial_rollouts"
    )
    rollouts = known.rollouts or said.get("rollouts_jsonl_fpath")
    inputs = known.inputs or said.get("materialized_inputs_jsonl_fpath")
    if rollouts is None or inputs is None:
        raise UsageError(f"`gym {command}` needs --inputs and --rollouts")
    partial = ["--allow-partial"] if is_true(said.get("allow_partial_rollouts")) else []
    return ["metrics", rollouts, "--write-profile", "--inputs", inputs, *partial]


def aggregate(command: str, arguments: list[str]) -> list[str]:
    once = ("--input-glob", "--output", *health.FLAGS)
    known, tokens = parse(command, arguments, once=once, switches=(health.OFF,))
    if known.help:
        return ["metrics", "--help"]
    keys = (
        "input_glob",
        "output_jsonl_fpath",
        "count_failure_classes_as_zero",
        "head_server.host",
        "head_server.port",
        *health.FLAGS.values(),
    )
    said = settings(
        command, tokens, keys, "merge_shards", "count_missing_rollouts_as_zero", "disable_health_check"
    )
    patterns = known.input_glob or said.get("input_glob")
    output = known.output or said.get("output_jsonl_fpath")
    if patterns is None or output is None:
        raise UsageError(f"`gym {command}` needs --input-glob and --output")
    labels = [label.strip() for label in said.get("count_failure_classes_as_zero", "").strip("[]").split(",")]
    port = said.get("head_server.port")
    return [
        "metrics",
        *(pattern for pattern in patterns.split(",") if pattern),
        *("--aggregate", output),
        *(part for label in labels if label for part in ("--zero", label)),
        *(["--missing-as-zero"] if is_true(said.get("count_missing_rollouts_as_zero")) else []),
        *([] if is_true(said.get("merge_shards", "true")) else ["--no-merge"]),
        *health.of_aggregate(known, said),
        *([] if port is None else ["--head", f"http://{said.get('head_server.host', '127.0.0.1')}:{port}"]),
    ]


def reverify(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(
        command,
        arguments,
        once=("--rollouts", "--inputs", "--output", *REVERIFY_SAME),
        switches=REVERIFY_SWITCHES,
    )
    if known.help:
        return ["reverify", "--help"]
    if known.rollouts is None:
        raise UsageError("which rollouts are to be scored again is not said", hint="--rollouts FILE.jsonl")
    given = [
        (flag, value)
        for flag in ("--inputs", "--output", *REVERIFY_SAME)
        if (value := getattr(known, attribute(flag))) is not None
    ]
    return [
        "reverify",
        known.rollouts,
        *selectors(known),
        *(part for pair in given for part in pair),
        *(
            part
            for flag, ours in REVERIFY_SWITCHES.items()
            if getattr(known, attribute(flag))
            for part in ours
        ),
        *tokens,
    ]
