"""The same configuration, rows, model and commands through NeMo Gym and gymctl, compared field by field.

    python -m peer.side_by_side [--package nemo-gym==0.7.0] [--keep FOLDER] [--only ours|theirs|all]

NeMo Gym runs in a container of its family's image. gymctl runs twice: `ours` is NeMo Gym's resources servers
with our agents, model and environment servers; in `theirs` agents and model server are NeMo Gym's, too. In
`all` everything is: it is run where it is asked for. The commands are NeMo Gym's own.
Ends with 1 where something differs that is not in `known.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gymctl.runtime.releases import folders
from peer import known, model, project
from peer.differences import ABSENT, Difference, compared, differences
from peer.worlds import World, free_port, gymctl_world, nemo_gym_world

_COLLECT = ("gym", "eval", "run", "--no-serve", "--concurrency")


def _rows(file: str, output: str) -> tuple[str, ...]:
    return ("--input", file, "--output", f"{output}/r.jsonl")


COMMANDS: dict[str, tuple[str, ...]] = {
    "good": (
        *_COLLECT,
        "4",
        *_rows("rows.jsonl", "good"),
        "--num-repeats",
        "2",
        "+num_repeats_add_seed=true",
    ),
    "profile": (
        *("gym", "eval", "profile"),
        *("--inputs", "good/r_materialized_inputs.jsonl", "--rollouts", "good/r.jsonl"),
    ),
    "aggregate": ("gym", "eval", "aggregate", "--input-glob", "good/r.jsonl", "--output", "merged/r.jsonl"),
    "interleaved": (
        *(*_COLLECT, "4", *_rows("rows.jsonl", "interleaved"), "--limit", "3", "--num-repeats", "3"),
        *("--interleave-repeats", "--temperature", "0.5", "--max-output-tokens", "77"),
        *("--agent", "mcqa_simple_agent"),
    ),
    "failing": (
        *("ng_collect_rollouts", "+input_jsonl_fpath=failing.jsonl", "+output_jsonl_fpath=failing/r.jsonl"),
        *("+num_repeats=2", "+num_samples_in_parallel=2", "+route_failures_to_sidecar=true"),
    ),
    "partial": (
        *("ng_reward_profile", "+materialized_inputs_jsonl_fpath=failing/r_materialized_inputs.jsonl"),
        *("+rollouts_jsonl_fpath=failing/r.jsonl", "+allow_partial_rollouts=true"),
    ),
    "zeros": (
        *(*_COLLECT, "4", *_rows("failing.jsonl", "zeros"), "+route_failures_to_sidecar=true"),
        *("+count_failure_classes_as_zero=[agent_run_error]", "+count_missing_rollouts_as_zero=true"),
    ),
    "first": (*_COLLECT, "1", *_rows("failing.jsonl", "resumed"), "+route_failures_to_sidecar=true"),
    "resumed": (
        *(*_COLLECT, "1", *_rows("failing.jsonl", "resumed"), "+route_failures_to_sidecar=true"),
        "--resume",
    ),
    "aborted": (*_COLLECT, "1", *_rows("failing.jsonl", "aborted")),
    "refused": (*_COLLECT, "1", *_rows("refused.jsonl", "refused")),
    "no_input": (*_COLLECT, "1", *_rows("nothing.jsonl", "no_input")),
    "no_agent": (*_COLLECT, "1", *_rows("rows.jsonl", "no_agent"), "--agent", "nobody"),
    "no_output": (*_COLLECT, "1", "--input", "rows.jsonl"),
    "no_flag": (*_COLLECT, "1", "--inptu", "rows.jsonl"),
    "status": ("gym", "env", "status"),
    "health": ("gym", "eval", "health-check", "good", "--rollouts-file", "r.jsonl"),
}
"""Name -> the words, of both programs."""
FILES = (
    *("r.jsonl", "r_failures.jsonl", "r_materialized_inputs.jsonl", "r_aggregate_metrics.json"),
    *("r_reward_profiling.jsonl", "r_agent_metrics.json", "r_repeat_level_metrics.json"),
    *("quality_summary.json", "rollout_verdicts.jsonl"),
)
_RELAYS = "environment_servers"
_KINDS = ("resources_servers", "responses_api_agents", "responses_api_models", _RELAYS)
WORLDS = {"ours": _KINDS[:1], "theirs": _KINDS[:3], "all": _KINDS}
"""Which kinds of servers come from the package; the others are ours."""


def main() -> int:
    options = _options()
    worlds = options.only or ("ours", "theirs")
    if options.compare:
        return max(report(options.compare, name) for name in worlds)
    root = Path(folders([options.package], lambda text: print(text, file=sys.stderr))[0])
    with contextlib.ExitStack() as stack:
        place = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place = place.resolve()
        url = stack.enter_context(model.serving(project.tasks(root)))
        image = ""
        for name in worlds:
            folder = place / name
            project.write(folder, root, url, free_port())
            overrides = (f"++nemo_gym_relays={str(_RELAYS in WORLDS[name]).lower()}",)
            shown, title = _search_dir(place, root, name), f"side-{name}-{os.getpid()}"
            with gymctl_world(folder, shown, title, overrides) as world:
                image = world.image
                _run_all(world)
        project.write(place / "peer", root, url, free_port())
        with nemo_gym_world(place / "peer", image) as world:
            _run_all(world)
        return max(report(place, name) for name in worlds)


def report(place: Path, name: str) -> int:
    """Print what differs between `peer` and `name`; 1 if something is not known."""
    found = list(_found(place / "peer", place / name))
    values = sum(compared(place / "peer", file) for file in _files())
    print(f"\n{name}: {values:,} values of {len(COMMANDS)} commands compared, {len(found)} differ")
    why = [(known.reason(one), one) for one in found]
    for reason, count in Counter(reason for reason, _ in why if reason).most_common():
        print(f"  {count:5} × {reason}")
    unknown: dict[str, list[Difference]] = {}
    for reason, one in why:
        if reason is None:
            unknown.setdefault(one.place, []).append(one)
    for where, ones in unknown.items():
        print(f"  {len(ones):5} × {where}   NOT KNOWN")
        print(f"          {ones[0].key}: NeMo Gym {_short(ones[0].left)}, gymctl {_short(ones[0].right)}")
    if not values:
        print("  nothing was compared")
    return int(bool(unknown) or not values)


def _found(peer: Path, other: Path) -> Iterator[Difference]:
    codes = [json.loads((folder / "exit_codes.json").read_text("utf-8")) for folder in (peer, other)]
    for name in COMMANDS:
        if codes[0][name] != codes[1][name]:
            yield Difference(f"exit code of `{name}`", (), codes[0][name], codes[1][name])
    for file in _files():
        yield from differences(peer, other, file)


def _files() -> Iterator[str]:
    places = sorted({name for name in (*COMMANDS, "merged")})
    yield from (f"{place}/{file}" for place in places for file in FILES)


def _run_all(world: World) -> None:
    codes: dict[str, int] = {}
    for name, command in COMMANDS.items():
        codes[name] = world.run(name, *command)
        print(f"  {world.folder.name}: {name} {codes[name]}", flush=True)
        if name == "first":
            _keep_first(world.folder)
    (world.folder / "exit_codes.json").write_text(json.dumps(codes), "utf-8")


def _keep_first(folder: Path) -> None:
    """What `--resume` finds, before it goes on: `first/` beside `resumed/`."""
    for file in (folder / "resumed").iterdir():
        if file.is_file():
            (folder / "first").mkdir(exist_ok=True)
            (folder / "first" / file.name).write_bytes(file.read_bytes())


def _search_dir(place: Path, root: Path, name: str) -> Path:
    """A folder that shows some kinds of the package's servers."""
    shown = place / f"{name}_shown"
    shown.mkdir(parents=True)
    for kind in WORLDS[name]:
        (shown / kind).symlink_to(root / kind)
    return shown


def _short(value: object) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value)
    return text if len(text) < 160 else f"{text[:157]}..."


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", default="nemo-gym==0.7.0")
    parser.add_argument("--compare", type=Path, metavar="FOLDER", help="only compare what --keep has kept")
    parser.add_argument("--keep", type=Path, help="a folder that is not there yet, for all that was made")
    parser.add_argument("--only", action="append", choices=WORLDS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
