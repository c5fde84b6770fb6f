"""The contract suite against our own servers, each in a container of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from fakes.contract import endpoint_in_a_thread, free_port, own_project

from gymctl.contract.part import SERVER_PORT

ROOT = Path(__file__).resolve().parents[3]


def test_the_contract_holds_in_containers(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        with endpoint_in_a_thread(port) as upstream:  # `up` waits for it; then the suite itself stands there
            head = stack.enter_context(own_project(tmp_path, upstream.url, runtime="compose"))
        options = ("--contract-target", head, "--contract-upstream", str(port))
        tools = ("--contract-tools", f"http://weather:{SERVER_PORT}")
        suite = ("tests/integration/contract", *options, *tools, "-q", "-p", "no:cacheprovider")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *suite], cwd=ROOT, capture_output=True, text=True, timeout=800
        )
    assert done.returncode == 0, done.stdout[-5000:]
    print(done.stdout.splitlines()[-1])  # the figures of docs/nemo-gym.md
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 200, done.stdout[-2000:]
