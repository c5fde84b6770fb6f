"""The flags of `gymctl eval`, and the keys of the configuration that some of them stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gymctl.cli.eval_flags import DEFAULT_CONCURRENCY, PROGRESS

SETTINGS = {
    "output": ("output_jsonl_fpath", "--output"),
    "input": ("input_jsonl_fpath", "--input"),
    "split": ("split", "--split"),
    "limit": ("limit", "--limit"),
    "repeats": ("num_repeats", "--repeats"),
    "interleave_repeats": ("interleave_repeats", "--interleave-repeats"),
    "concurrency": ("num_samples_in_parallel", "--concurrency"),
    "strict": ("route_failures_to_sidecar", "--strict"),
    "agent": ("agent_name", "--agent"),
    "prompt_config": ("prompt_config", "--prompt-config"),
    "temperature": ("responses_create_params.temperature", "--temperature"),
    "top_p": ("responses_create_params.top_p", "--top-p"),
    "max_output_tokens": ("responses_create_params.max_output_tokens", "--max-output-tokens"),
}
"""Parameters below -> the key of the configuration that each stands for (CONTRACT 9.2), and its flag."""


def _setting(*names: str, help: str, metavar: str | None = None) -> Any:
    """A flag that stands for a key of the configuration, which its help names."""
    key = next(key for key, flag in SETTINGS.values() if flag == names[0].partition("/")[0])
    return typer.Option(*names, metavar=metavar, help=f"{help} [{key}]")


Output = Annotated[
    Path | None,
    _setting("--output", "-o", metavar="FILE.jsonl", help="Default: results/<benchmark>-<time>.jsonl."),
]
Input = Annotated[
    Path | None,
    _setting("--input", "-i", metavar="FILE.jsonl", help="Rows to run instead of the benchmark's own."),
]
Split = Annotated[
    str | None, _setting("--split", help="Datasets to run: benchmark (default), train or validation.")
]
Limit = Annotated[
    int | None,
    _setting("--limit", help="Run the first N rows; 0 is none, all by default. In a file 0 means all."),
]
Repeats = Annotated[
    int | None,
    _setting(
        *("--repeats", "-k", "--num-repeats"),
        help="Attempts at each task, 1 by default; also the k of pass@k.",
    ),
]
Interleave = Annotated[
    bool | None,
    _setting(
        "--interleave-repeats/--no-interleave-repeats", help="All first attempts, then all second ones."
    ),
]
Concurrency = Annotated[
    int | None,
    _setting(
        "--concurrency",
        help=f"Rollouts at once, {DEFAULT_CONCURRENCY} by default. Above 8 per CPU the machine is the limit.",
    ),
]
Agent = Annotated[str | None, _setting("--agent", "-a", help="Send every row to this agent.")]
PromptConfig = Annotated[
    str | None,
    _setting("--prompt-config", metavar="FILE.yaml", help="The prompt of rows that bring no input."),
]
Temperature = Annotated[float | None, _setting("--temperature", help="Overrides the rows' own.")]
TopP = Annotated[float | None, _setting("--top-p", help="Overrides the rows' own.")]
MaxOutputTokens = Annotated[int | None, _setting("--max-output-tokens", help="Overrides the rows' own.")]
TaskTimeout = Annotated[
    str | None, typer.Option(metavar="TIME", help="Limit for one rollout: seconds, 90s, 14m. Default: none.")
]
MaxTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start no rollout after this time: seconds, 90s, 14m.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Start no rollout once so many tokens, in and out, are used.")
]
MaxCost = Annotated[
    float | None, typer.Option(metavar="USD", help="Start no rollout once so much is spent; needs --prices.")
]
MaxRolloutTokens = Annotated[
    int | None, typer.Option(min=1, help="Mark rollouts that used more; they keep their score.")
]
MaxRolloutCost = Annotated[
    float | None, typer.Option(metavar="USD", help="Mark rollouts that cost more; they keep their score.")
]
Retry = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CLASS=N",
        help="Try failures of a class again N times, or none. Default: model=2 infrastructure=2.",
    ),
]
Strict = Annotated[
    bool | None, _setting("--strict/--no-strict", help="Stop everything at the first failed rollout.")
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Replace the results at this output. Without it they are gone on with."),
]
FreshByDefault = Annotated[bool, typer.Option("--fresh-by-default", hidden=True)]
ResumeAnyway = Annotated[
    bool,
    typer.Option("--resume-anyway", help="Go on with results that were made with something else."),
]
Collate = Annotated[
    bool,
    typer.Option("--collate", help="Collate the datasets in the run's folder first, as `gym eval run` does."),
]
KeepUp = Annotated[bool, typer.Option("--keep-up", help="Leave the servers running afterwards.")]
Progress = Annotated[
    str,
    typer.Option(
        metavar="|".join(PROGRESS),
        help="How the run is shown on stderr; auto is rich on a terminal and plain lines elsewhere.",
    ),
]
