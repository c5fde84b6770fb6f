"""Bring up every resources server of a NeMo Gym release and write what came of it.

    PYTHONPATH=tests python -m peer.catalogue [SERVER ...] [--jobs 2] [--page docs/compatibility.md]

Results are kept per server, so a run that was ended goes on where it stopped; `--again` makes them anew. A
server that needs a GPU or a sandbox, by what `gymctl list` says, is only tried when it is named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from gymctl.runtime.releases import folders
from peer import page
from peer.deviations import NO_SERVERS
from peer.recorded import Json
from peer.server import Result, Rows, try_server
from peer.setup import flavour

PACKAGE = "nemo-gym==0.7.0"
MIN_FREE = 12 * 2**30
"""Bytes on the disk below which no further server is begun."""
NOT_ALONE = {"gpu", "sandbox"}
"""What a machine alone does not have."""
SHOWN = ("gpu", "sandbox", "judge", "network", "git", "key", "programs")


def main() -> int:
    options = _options()
    root = Path(folders([options.package], lambda text: print(text, file=sys.stderr))[0])
    results: Path = options.results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    needs = _needs(root)
    names = options.servers or sorted(needs)
    owed = [name for name in names if options.again or not (results / f"{name}.json").exists()]
    if not options.servers:
        for name in [name for name in owed if name in NO_SERVERS or NOT_ALONE & {*needs[name]}]:
            _keep(Result(name, needs[name], note=NO_SERVERS.get(name, "not tried")), results)
            owed.remove(name)
    print(f"{len(names)} servers, {len(owed)} to do", flush=True)
    _run(root, owed, needs, results, options.jobs)
    found = load(results)
    print(page.summary(found, len(needs)))
    if options.page:
        page.write(options.page, found, options.package, len(needs))
    return 0


def load(results: Path) -> list[Result]:
    """What is known so far, by name."""
    found: list[Result] = []
    for file in sorted(results.glob("*.json")):
        told = json.loads(file.read_text("utf-8"))
        for key in ("theirs", "ours"):
            told[key] = Rows(**told[key]) if told[key] else None
        found.append(Result(**told))
    return found


def _run(root: Path, owed: list[str], needs: dict[str, list[str]], results: Path, jobs: int) -> None:
    stop = threading.Event()

    def one(name: str) -> Result | None:
        if stop.is_set() or shutil.disk_usage(results).free < MIN_FREE:
            return None
        return try_server(root, name, results / "work" / name, needs.get(name, ()))

    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(one, name): name for name in owed}
        try:
            for done in as_completed(running):
                result = done.result()
                if result is None:
                    print(f"{running[done]}: not begun, the disk is nearly full", flush=True)
                    continue
                _keep(result, results)
                print(page.line(result), flush=True)
        except KeyboardInterrupt:
            stop.set()
            print("ending after the servers under way", flush=True)


def _keep(result: Result, results: Path) -> None:
    (results / f"{result.server}.json").write_text(json.dumps(asdict(result), indent=1), "utf-8")


def _needs(root: Path) -> dict[str, list[str]]:
    """Kinds of needs of every server, with those of the config that is taken for it."""
    command = (sys.executable, "-m", "gymctl", "list", "resources", "--search-dir", str(root), "--json")
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {one["name"]: _kinds(one) for one in told if Path(one["folder"]).is_relative_to(root)}


def _kinds(server: Json) -> list[str]:
    folder = Path(server["folder"])
    taken = flavour(folder)
    wanted = taken if taken == folder.name else f"{folder.name}/{taken}"
    configs = [need for config in server["configs"] if config["name"] == wanted for need in config["needs"]]
    kinds = {need["kind"] for need in (*server["needs"], *configs)}
    return [kind for kind in SHOWN if kind in kinds]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="peer.catalogue"
    )
    parser.add_argument("servers", nargs="*", metavar="SERVER")
    parser.add_argument("--package", default=PACKAGE)
    parser.add_argument("--jobs", type=int, default=2, help="servers at a time")
    parser.add_argument("--results", type=Path, default=Path("results/peer"))
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--page", type=Path, help="where the table stands")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
