"""What `gymctl metrics` writes when it is asked to: the reward profile, and the metrics of merged shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gymctl.cli.eval_health import checked
from gymctl.cli.health_text import health_text
from gymctl.cli.output import Console
from gymctl.cli.serving import Serving
from gymctl.contract.rollout import Row
from gymctl.contract.servers import ServerTable
from gymctl.counts import counted
from gymctl.errors import UsageError
from gymctl.metrics.declared import Declaration
from gymctl.paths import RunPaths
from gymctl.rollouts.finish import aggregate_metrics, document
from gymctl.rollouts.head import server_table
from gymctl.rollouts.lines import replace
from gymctl.rollouts.measured import overlap
from gymctl.rollouts.merge import merge
from gymctl.rollouts.metric_input import Counting, MetricInput
from gymctl.rollouts.profile import write_profile
from gymctl.rollouts.route import Router, named_agent
from gymctl.rollouts.saved import SavedRun
from gymctl.transport import Transport


def write_profiles(paths: Sequence[Path], inputs: Path | None, *, is_partial: bool, is_json: bool) -> None:
    """The reward profile of one run, as files; a table of how complete it is."""
    if len(paths) != 1:
        raise UsageError(f"a reward profile is of one run, got {len(paths)} files", where="--write-profile")
    console = Console()
    made = write_profile(paths[0], inputs or RunPaths(paths[0]).inputs, is_partial=is_partial)
    if is_json:
        console.json({**made.summary, "files": [str(path) for path in made.files]})
        return
    console.table(("ROWS", ""), list(made.summary.items()))
    for path in made.files:
        console.say(f"  wrote {path}")


def aggregate_shards(
    paths: Sequence[Path],
    output: Path,
    labels: Sequence[str],
    *,
    missing: bool,
    merges: bool,
    head: str | None,
) -> None:
    """Merge shards into `output` and ask the running servers for the metrics of all their rollouts."""
    own = output.resolve()
    shards = [SavedRun.open(path) for path in paths if path.resolve() != own]
    if not shards:
        raise UsageError("there is no shard beside the output", where=str(output))
    overlap(shards)
    console = Console()
    counting = Counting(Declaration(labels=frozenset(labels)), missing)
    entries = asyncio.run(_aggregated(shards, counting, head))
    output.parent.mkdir(parents=True, exist_ok=True)
    if merges:
        count = merge(shards, output)
        console.say(f"  wrote {output}: {counted(count, 'rollout')} of {counted(len(shards), 'shard')}")
    metrics = RunPaths(output).aggregate
    replace(metrics, document(entries))
    console.say(f"  wrote {metrics}")
    console.json([{"agent_ref": entry["agent_ref"], **entry["key_metrics"]} for entry in entries])


def check_shards(paths: Sequence[Path], output: Path, ignored: Sequence[str], workers: int | None) -> None:
    """The health of all shards as of one run, written beside `output`."""
    console = Console()
    shards = [SavedRun.open(path) for path in paths if path.resolve() != output.resolve()]
    found = checked(shards, RunPaths(output), ignored, workers, console)
    if found is not None:
        console.say(f"  wrote {RunPaths(output).health}: {health_text(found)}")


async def _aggregated(
    shards: Sequence[SavedRun], counting: Counting, head: str | None
) -> list[dict[str, Any]]:
    async with Transport() as transport:
        if head is not None:
            table = await server_table(transport, head.rstrip("/"))
        else:
            asked = Serving(None, lambda _: None, Console(), "auto", 1)
            table = (await asked.running(transport)).table
        router = Router(table)
        with MetricInput(shards, counting, lambda row: router.route(row).server) as found:
            await asyncio.to_thread(found.fill)
            agents = _agents(shards, table, found.server_of)
            return list(await aggregate_metrics(transport, table, found, agents))


def _agents(
    shards: Sequence[SavedRun], table: ServerTable, server_of: Callable[[Row], str]
) -> dict[str, set[str]]:
    """The agents of the rollouts of each environment server."""
    agents: dict[str, set[str]] = {}
    for shard in shards:
        for rollout in shard.rollouts():
            server = server_of(rollout.record)
            agent = named_agent(rollout.record) or _fronted(table, server, rollout.record)
            agents.setdefault(server, set()).update([agent] if agent is not None else [])
    return agents


def _fronted(table: ServerTable, server: str, record: Row) -> str | None:
    """The agent behind a server, for records that name none."""
    return table[server].references.get("agent_server") if server in table else record.get("task_source")
