"""What does a configuration cost, large and small, and what does one with a mistake cost?

    python benchmarks/perf/config.py                      all shapes
    python benchmarks/perf/config.py --servers 50 --runs 3

Writes configurations of `--servers` servers, spread over five included files and a sixth over them: once 40
ordinary leaves a server, once with 15 KB of prompt text beside them. Prints, as the least CPU seconds of
`--runs` runs (the least, because whatever else the machine does only adds to it):

    load     files and flags to a checked Config
    start    what `up` makes of it before it talks to the engine: ports, part files, the compose file
    process  `gymctl config show` of a small benchmark, and of several mistakes, from start to exit

The aim: 2 seconds for a large load, 0.5 for a small command, also for one that fails.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gymctl.compose import yaml as compose_yaml
from gymctl.compose.render import Rendering, render
from gymctl.config import ports
from gymctl.config.load import load
from gymctl.config.model import Config
from gymctl.config.sources import Selection
from gymctl.runtime import parts

FILES = 5
GROUPS, LEAVES = 5, 8
SENTENCE = (
    "You are a careful judge. Read the answer, compare it with the reference, and decide which one is right."
)
KINDS = (
    ("resources_servers", "bench_tools", "domain: agent"),
    ("responses_api_models", "bench_model", "api_key: ${policy_api_key}"),
    (
        "responses_api_agents",
        "bench_agent",
        "resources_server: {{type: resources_servers, name: server_{first}}}\n"
        "      model_server: {{type: responses_api_models, name: server_{second}}}",
    ),
    (
        "environment_servers",
        "bench_environment",
        "agent_server: {{type: responses_api_agents, name: server_{third}}}",
    ),
)
VALUES = (
    "17",
    "0.25",
    "true",
    "null",
    "ordinary text of a setting",
    "data/some_file.jsonl",
    "[1, 2, 3]",
    "1e5",
)
MODEL = ("--model-type", "openai_model", "--model", "m", "--model-url", "http://h/v1", "--model-api-key", "k")
COMMANDS: dict[str, tuple[str, ...]] = {
    "a small benchmark": ("arithmetic", *MODEL),
    "with an override": ("arithmetic", *MODEL, "++limit=3"),
    "no such benchmark": ("arithmetik", *MODEL),
    "values missing": ("arithmetic", "--model-type", "openai_model"),
    "a key without +": ("arithmetic", *MODEL, "limit=3"),
    "a broken reference": ("arithmetic", *MODEL, "++x=${nowhere}"),
    "no valid YAML": ("--config", "broken.yaml"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    print(f"least CPU seconds of {asked.runs} runs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="gymctl-perf-") as name:
        for shape, sentences in (("ordinary leaves", 0), ("long texts", 150)):
            folder = Path(name, shape.replace(" ", "-"))
            size = write(folder, asked.servers, sentences)
            print(f"  {asked.servers} servers, {shape}, {size / 2**20:.1f} MiB", flush=True)
            for phase, work in phases(folder):
                print(f"    {phase:<24} {least(work, asked.runs):6.2f}", flush=True)
        folder = Path(name)
        (folder / "broken.yaml").write_text("a: [\n")
        print("  one process")
        for label, arguments in COMMANDS.items():
            print(f"    {label:<24} {least(partial(run, arguments, folder), asked.runs):6.2f}", flush=True)


def phases(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    def loaded() -> Config:
        return load(Selection(config=("all.yaml",)), cwd=folder, environ={})

    config = ports.allocate(loaded())
    yield "load", lambda: spent(loaded)
    yield "start", lambda: spent(lambda: started(config))


def started(config: Config) -> None:
    config = ports.allocate(config)
    made = parts.build(config, parts.Wiring(view="network", secret=b"secret"))
    digests = {service: parts.digest(part) for service, part in made.items()}
    images = {server: "image:tag" for server in config.servers}
    rendering = Rendering(images=images, head_image="head:tag", part_digests=digests, folder="/work")
    compose_yaml.dump(render(config, rendering), path="compose.yaml")


def least(work: Callable[[], float], runs: int) -> float:
    return min(work() for _ in range(runs))


def spent(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def run(arguments: tuple[str, ...], folder: Path) -> float:
    """CPU seconds of `gymctl config show`, as a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "gymctl", "config", "show", *arguments],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def write(folder: Path, servers: int, sentences: int) -> int:
    """The configuration and its server folders. Returns the bytes of all files."""
    for kind, implementation, _ in KINDS:
        place = folder / kind / implementation
        place.mkdir(parents=True)
        (place / "app.py").touch()
        (place / "requirements.txt").touch()
    texts = {
        f"part_{part}.yaml": "".join(block(number, sentences) for number in range(part, servers, FILES))
        for part in range(FILES)
    }
    texts["over.yaml"] = "".join(
        f"server_{number}: {{{kind}: {{{name}: {{group_0: {{setting_0: {number}, added: x}}}}}}}}\n"
        for number in range(servers)
        for kind, name, _ in [KINDS[number % len(KINDS)]]
    )
    texts["all.yaml"] = f"config_paths: [{', '.join(texts)}]\n"
    texts["env.yaml"] = (
        "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-bench-0001\npolicy_model_name: m\n"
    )
    for name, text in texts.items():
        (folder / name).write_text(text)
    return sum(map(len, texts.values()))


def block(number: int, sentences: int) -> str:
    kind, implementation, extra = KINDS[number % len(KINDS)]
    base = number - number % len(KINDS)
    if "{first}" in extra or "{third}" in extra:
        extra = extra.format(first=base, second=base + 1, third=base + 2)
    lines = [
        f"server_{number}:",
        f"  {kind}:",
        f"    {implementation}:",
        "      entrypoint: app.py",
        f"      {extra}",
        "      base_url: ${policy_base_url}",
        "      judge_url: ${policy_base_url}/chat",
        "      judge_model: ${policy_model_name}",
        "      again: ${.base_url}",
    ]
    for group in range(GROUPS):
        lines.append(f"      group_{group}:")
        lines += [
            f"        setting_{leaf}: {VALUES[(number + leaf) % len(VALUES)]}" for leaf in range(LEAVES)
        ]
    if sentences:
        lines += ["      prompt: |", *[f"        {SENTENCE}"] * sentences]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
