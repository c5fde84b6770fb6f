"""benchmarks/perf/hops.py still drives every kind of server; what they cost is not asserted here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "perf" / "hops.py"


def test_every_kind_of_server_is_measured_beside_the_echo() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--requests", "4", "--rounds", "1", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    small = {line["request"] for line in lines if line["size"] == "4 KiB"}
    large = {line["request"] for line in lines if line["size"] == "256 KiB"}
    assert small - large == {"liveness"}
    assert {name.split(" ")[0].strip(",") for name in small} == {
        "echo",
        "liveness",
        "head",
        "relay",
        "model",
        "resources",
        "agent",
    }
    # So few requests can cost less than the clock of a busy machine tells: single figures may be 0.
    assert all(line["median"] >= line["least"] >= 0 for line in lines)
    assert sum(line["least"] for line in lines) > 0
