"""What `gymctl eval` promises, whichever runtime serves it: called by tests/integration and tests/docker."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from fakes.counting import counts_seen, expected, write_rows
from fakes.program import gymctl, own_head, read_lines, start

REPO = Path(__file__).resolve().parents[2]
LATE = "++policy_model.responses_api_models.scripted_model.faults.latency_ms=500"
SLOW = "++policy_model.responses_api_models.scripted_model.faults.latency_ms=150"


def sessions_stay_apart(folder: Path, runtime: str, *, rows: int = 64) -> None:
    """64 rollouts at once over two tools each: every one reads its own count and is scored by it."""
    write_rows(folder / "rows.jsonl", rows)
    done = gymctl(
        *("eval", "--resources-server", "counter", "--model-type", "scripted_model", "--runtime", runtime),
        *("-i", "rows.jsonl", "-o", "out.jsonl", "--concurrency", rows, "--json", SLOW),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    seen = counts_seen(folder / "out.jsonl")
    assert seen == {number: [expected(number)] for number in range(rows)}
    assert [record["reward"] for record in read_lines(folder / "out.jsonl")] == [1.0] * rows


def scripted_weather_is_scored(folder: Path, runtime: str) -> None:
    """The bundled tool benchmark: its score is known, labelled as scripted, and its files are whole."""
    done = gymctl("eval", "weather", "--runtime", runtime, "-k", "2", "-o", "out/weather.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "reward      0.750" in done.stdout
    assert "scripted model" in done.stdout
    records = read_lines(folder / "out" / "weather.jsonl")
    assert len(records) == 40
    assert {(record["_ng_task_index"], record["_ng_rollout_index"]) for record in records} == {
        (task, attempt) for task in range(20) for attempt in range(2)
    }
    assert len(read_lines(folder / "out" / "weather_materialized_inputs.jsonl")) == 40
    [metrics] = json.loads((folder / "out" / "weather_aggregate_metrics.json").read_text())
    assert metrics["_ng_environment_server"] == "weather_environment_server"
    assert metrics["agent_metrics"]["mean/reward"] == 0.75
    assert metrics["agent_metrics"]["num_repeats"] == 2


def model_calls_are_on_record(folder: Path, runtime: str) -> None:
    """With observability on every record holds its calls, whose files are ours to read and to remove."""
    calls = folder / "new" / "calls"
    (folder / "observe.yaml").write_text(f"observability_enabled: true\nmodel_call_capture_dir: {calls}\n")
    arguments = ("eval", "weather", "--config", "observe.yaml", "--runtime", runtime, "--limit", "4")
    for _ in range(2):  # what the first run recorded is not taken for the second's
        done = gymctl(*arguments, "-k", "2", "-o", "out.jsonl", cwd=folder)
        assert done.returncode == 0, done.stderr
    records = read_lines(folder / "out.jsonl")
    assert len(records) == 8
    for record in records:
        rollout = record["gymctl_rollout_id"]
        lines = read_lines(calls / f"{rollout}.capture.jsonl")
        capture, trajectory = record["ng_model_call_capture"], record["ng_trajectory"]
        assert (capture["rollout_id"], capture["gaps"]) == (rollout, [])
        assert capture["metrics"]["num_calls"] == len(capture["calls"]) == len(lines) > 0
        assert [call["model_call_id"] for call in capture["calls"]] == [
            line["model_call_id"] for line in lines
        ]
        assert not any("request" in call for call in capture["calls"]), "the trajectory holds it"
        assert [call["request"] for call in trajectory["model_calls"]] == [line["request"] for line in lines]
        assert len(trajectory["turns"]) == len(lines)
        assert record["ng_perf"]["token_observability_coverage"] == 1.0
        assert record["ng_perf"]["num_turns"] == len(lines)
    assert len(list(calls.iterdir())) == 8
    shutil.rmtree(calls)
    assert "health      8 healthy\n" in done.stdout
    summary = json.loads((folder / "out" / "quality_summary.json").read_text())
    artifacts = summary["run"]["artifacts"]
    assert (artifacts["records"], artifacts["captures"]) == (8, 8)
    assert artifacts["coverage"]["model_call_failed"]["evaluated"] == 8
    verdicts = read_lines(folder / "rollout_verdicts.jsonl")
    assert {verdict["rollout_id"] for verdict in verdicts} == {one["gymctl_rollout_id"] for one in records}


def unhealthy_rollouts_are_told(folder: Path, runtime: str) -> None:
    """A model that answers nothing, one that answers, and one that refuses the call: three verdicts."""
    (folder / "observe.yaml").write_text(
        f"observability_enabled: true\nmodel_call_capture_dir: {folder / 'calls'}\n"
    )
    scripts = [json.dumps([""]), json.dumps(["It snows."]), "no script"]
    rows = [
        {
            "responses_create_params": {"input": "How is the weather?", "metadata": {"script": script}},
            "agent_ref": {"name": "weather_agent"},
            "city": "Oslo",
        }
        for script in scripts
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = gymctl(
        *("eval", "weather", "--config", "observe.yaml", "--runtime", runtime, "-i", "rows.jsonl"),
        *("-o", "out.jsonl", "--retry", "model=0", "--min-coverage", "0"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert "health      1 healthy · 2 unhealthy (" in done.stdout
    verdicts = {verdict["rollout_id"]: verdict for verdict in read_lines(folder / "rollout_verdicts.jsonl")}
    found = {name: [one["check"] for one in verdict["findings"]] for name, verdict in verdicts.items()}
    assert found == {
        "0-0": ["agent_turn_hollow", "model_call_zero_completion_tokens"],
        "1-0": [],
        "2-0": ["rollout_ended_on_failed_model_call", "model_call_failed"],
    }
    summary = json.loads((folder / "quality_summary.json").read_text())
    assert summary["tasks"]["2"]["flags"] == ["task_no_successful_model_calls"]


def blackjack_is_played(folder: Path, runtime: str) -> None:
    """A step-style environment, by the words of its README: scripted answers, known ends, their metrics."""
    readme = (REPO / "server_images/resources_servers/blackjack/README.md").read_text("utf-8")
    command = readme[readme.index("    gymctl eval") :].partition("\n\n")[0].replace("\\\n", "")
    arguments = command.split()[1:]
    done = gymctl(*arguments, "--runtime", runtime, "-k", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "reward      0.400" in done.stdout
    results = {"win": 1.0, "loss": -1.0, "bust": -1.0, "draw": 0.0}
    records = read_lines(folder / "results" / "blackjack.jsonl")
    assert len(records) == 10
    for record in records:
        assert record["reward"] == results[record["info"]["result"]]
        assert (record["terminated"], record["truncated"]) == (True, False)
        assert record["response"]["output"][-1]["role"] == "assistant"
    [metrics] = json.loads((folder / "results" / "blackjack_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/terminated"] == 1.0
    assert metrics["key_metrics"]["mean/truncated"] == 0.0


def unfinished_blackjack_is_truncated(folder: Path, runtime: str) -> None:
    """A row as NeMo Gym writes it; a model that never acts is stopped by the agent, and the table says so."""
    script = json.dumps(["Let me think."])
    params = {"input": [{"role": "user", "content": "Deal me in."}], "metadata": {"script": script}}
    row = {"responses_create_params": params, "agent_ref": {"name": "blackjack_gymnasium_agent"}}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    steps = "++blackjack_gymnasium_agent.responses_api_agents.gymnasium_agent.max_steps=2"
    done = gymctl(
        *("eval", "--resources-server", "blackjack", "--model-type", "scripted_model", "--runtime", runtime),
        *("-i", "rows.jsonl", "-o", "out.jsonl", steps),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert "scored 1 (limit reached 1)" in done.stdout
    [record] = read_lines(folder / "out.jsonl")
    assert (record["reward"], record["terminated"], record["truncated"]) == (0.0, False, True)
    roles = [item["role"] for item in record["response"]["output"]]
    assert roles == ["assistant", "user", "assistant", "user"]
    [metrics] = json.loads((folder / "out_aggregate_metrics.json").read_text())
    assert metrics["agent_metrics"]["mean/truncated"] == 1.0


PARROT = """\
from gymctl.servers import AgentConfig, AgentServer


class ParrotConfig(AgentConfig):
    answer: str


class Parrot(AgentServer):
    config: ParrotConfig

    async def respond(self, params, turn):
        content = [{"type": "output_text", "text": self.config.answer, "annotations": []}]
        message = {"type": "message", "id": "m", "role": "assistant", "content": content}
        base = {"id": "r", "object": "response", "created_at": 0, "model": "none", "tools": []}
        return {**base, "output": [message], "parallel_tool_calls": True, "tool_choice": "auto"}


app = Parrot.app()
"""
PARROT_CONFIG = """\
parrot_agent:
  responses_api_agents:
    parrot_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: ???
      answer: I do not know.
"""


def another_agent_takes_the_place(folder: Path, runtime: str) -> None:
    """`--agent-type` with an agent of the user's own folder, whose settings are overridden by its new id."""
    server = folder / "responses_api_agents" / "parrot_agent"
    (server / "configs").mkdir(parents=True)
    (server / "app.py").write_text(PARROT)
    (server / "requirements.txt").write_text("# nothing\n")
    (server / "configs" / "parrot_agent.yaml").write_text(PARROT_CONFIG)
    answer = "++weather_parrot_agent.responses_api_agents.parrot_agent.answer='It rains, or not.'"
    done = gymctl(
        *("eval", "weather", "--agent-type", "parrot_agent", "--runtime", runtime, answer),
        *("-o", "out.jsonl", "--limit", "3"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert "reward      0.000" in done.stdout
    records = read_lines(folder / "out.jsonl")
    texts = [record["response"]["output"][0]["content"][0]["text"] for record in records]
    assert texts == ["It rains, or not."] * 3


def small_model_is_evaluated(folder: Path, runtime: str) -> None:
    """A real model on real tasks, as in the demo: token ids and log probabilities come along."""
    done = gymctl(
        *("eval", "arithmetic", "--model-type", "llama_cpp_model", "--runtime", runtime),
        *("--limit", "2", "-k", "2", "-o", "demo.jsonl", "--json"),
        *("--temperature", "0"),  # no answer is left to chance
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    records = read_lines(folder / "demo.jsonl")
    assert len(records) == 4
    for record in records:
        last = record["response"]["output"][-1]
        assert 0.0 <= record["reward"] <= 1.0
        assert len(last["generation_token_ids"]) == len(last["generation_log_probs"]) > 0
        assert all(isinstance(token, int) for token in last["prompt_token_ids"])


def servers_are_seen_while_it_runs(folder: Path, runtime: str) -> list[dict[str, Any]]:
    """`gymctl ps` from another terminal shows the servers of an evaluation that is under way."""
    arguments = ["eval", "weather", "--runtime", runtime, "-o", "out.jsonl", "--concurrency", "2", LATE]
    with start(*arguments, cwd=folder) as running:
        rows: list[dict[str, Any]] = []
        end = time.monotonic() + 120
        while running.poll() is None and time.monotonic() < end and not _all_ready(rows):
            time.sleep(0.2)
            rows = json.loads(gymctl("ps", "--json", cwd=folder).stdout or "[]")
        assert running.poll() is None, "it ended before `ps` saw its servers"
        assert _all_ready(rows)
        _, talk = running.communicate(timeout=120)
    assert running.returncode == 0, talk
    assert json.loads(gymctl("ps", "--json", cwd=folder).stdout) == []
    return rows


def _all_ready(projects: list[dict[str, Any]]) -> bool:
    states = [server["state"] for project in projects for server in project["servers"]]
    return len(states) == 5 and set(states) == {"ready"}


def running_project_is_used(folder: Path, runtime: str) -> None:
    """`up --detach`, `ps`, `eval --no-serve`, `logs`, `down`: the same project throughout."""
    head = own_head()
    up = gymctl("up", "weather", "--detach", "--runtime", runtime, head, cwd=folder)
    try:
        assert up.returncode == 0, up.stderr
        servers = json.loads(gymctl("ps", "--json", cwd=folder).stdout)
        assert "weather_agent" in json.dumps(servers)
        evaluated = gymctl("eval", "weather", "--no-serve", "-o", "out.jsonl", "--json", head, cwd=folder)
        assert evaluated.returncode == 0, evaluated.stderr
        assert len(read_lines(folder / "out.jsonl")) == 20
        logs = gymctl("logs", "weather", cwd=folder)
        assert logs.returncode == 0, logs.stderr
    finally:
        down = gymctl("down", cwd=folder)
    assert down.returncode == 0, down.stderr
    after = gymctl("eval", "weather", "--no-serve", "-o", "after.jsonl", head, cwd=folder)
    assert after.returncode not in (0, 70), after.stderr
    assert "Traceback" not in after.stderr


def small_model_is_replayed(folder: Path, runtime: str) -> None:
    """The committed cassette of the small model: its rollouts, its score, without the model."""
    done = gymctl(
        *("eval", "arithmetic", "--model", "replay:benchmarks/arithmetic/smollm2.cassette"),
        *("--runtime", runtime, "--limit", "20", "-k", "2", "-o", "demo.jsonl", "--json"),
        *("--progress", "json"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [one["is_last"] for one in told] == [False] * (len(told) - 1) + [True]
    for key in ("planned", "scored", "failed"):
        assert told[-1][key] == result["rollouts"][key]
    assert told[-1]["tokens"].items() <= result["tokens"].items()
    assert (result["rollouts"]["scored"], round(result["reward"], 4)) == (40, 0.4042)
    records = read_lines(folder / "demo.jsonl")
    answers = {(row["_ng_task_index"], row["response"]["id"]) for row in records}
    assert len(answers) == 40
    for record in records:
        last = record["response"]["output"][-1]
        assert len(last["generation_token_ids"]) == len(last["generation_log_probs"]) > 0
