"""A prepare script that needs NeMo Gym's package, in a container of the family's image."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fakes.prepared import add_package, config_of
from fakes.program import gymctl, read_lines, start

TOKEN = "hf_planted_4711"
SCRIPT = """\
import json
import os
import time
from pathlib import Path

import tiny_words
from nemo_gym.global_config import get_global_config_dict, get_hf_token

def prepare(*, size: int = 2, seconds: float = 0.0):
    data = Path(__file__).resolve().parent / "data"
    data.mkdir(exist_ok=True)
    facts = {
        "token": get_hf_token(),
        "key": get_global_config_dict()["policy_" + "api_key"],
        "word": tiny_words.WORD,
        "user": os.getuid(),
        "asked": os.environ.get("SUMS_TOKEN"),
        "listed": "hf_planted" in str(dict(os.environ)),
    }
    path = data / "rows.jsonl"
    path.write_text("".join(json.dumps(facts) + "\\n" for _ in range(size)))
    (data / "more.txt").write_text("more")
    print("sleeping", flush=True)
    time.sleep(seconds)
    if size == 7:
        raise ValueError(f"no luck with {path} and {get_hf_token()}")
    return path
"""
PREPARE = ("dataset", "prepare", "a.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    add_package(tmp_path / "sums" / "package")
    (tmp_path / "sums" / "prepare.py").write_text(SCRIPT)
    config = config_of("sums/prepare.py", "sums/data/rows.jsonl", "['-e', sums/package]")
    secrets = f"hf_token: {TOKEN}\npolicy_api_key: sk-planted-4711\n"
    (tmp_path / "a.yaml").write_text(config + secrets)
    return tmp_path


def containers(*more: str) -> list[str]:
    command = ["docker", "ps", "--all", "--quiet", "--filter", "label=dev.gymctl.prepare", *more]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_it_makes_its_files_with_its_packages_and_the_tokens_that_it_names(folder: Path) -> None:
    before = containers()
    done = gymctl(
        *(*PREPARE, "++prepare_script_args.size=3"), cwd=folder, environ={"SUMS_TOKEN": "mine-4711"}
    )

    rows = folder / "sums" / "data" / "rows.jsonl"
    assert (done.returncode, done.stdout) == (0, f"{rows}\n"), done.stderr
    facts = {"token": TOKEN, "key": "****", "word": "tiny", "asked": "mine-4711", "listed": False}
    made = read_lines(rows)
    assert [{**row, "user": None} for row in made] == [{**facts, "user": None}] * 3
    assert made[0]["user"] != 0
    assert rows.stat().st_uid == folder.stat().st_uid
    assert (folder / "sums" / "data" / "more.txt").read_text() == "more"
    assert not (folder / "sums" / "__pycache__").exists()

    failed = gymctl(*PREPARE, "++prepare_script_args.size=7", cwd=folder)
    assert failed.returncode == 4, failed.stderr
    assert f"no luck with {rows} and ****" in failed.stderr
    assert len(read_lines(rows)) == 3
    assert containers() == before


def running(folder: Path) -> tuple[subprocess.Popen[str], set[str]]:
    """A command whose script sleeps, and its container."""
    before = set(containers())
    program = start(*PREPARE, "++prepare_script_args.seconds=3600", cwd=folder)
    deadline = time.monotonic() + 600
    while not (mine := set(containers("--filter", "status=running")) - before):
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    seen = ["docker", "exec", *mine, "test", "-e", "/tmp/root/sums/data/rows.jsonl"]
    while subprocess.run(seen, check=False).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return program, mine


def test_what_a_killed_command_left_is_gone_with_the_next_one(folder: Path) -> None:
    program, mine = running(folder)
    program.kill()
    program.communicate(timeout=60)
    assert mine <= set(containers("--filter", "status=running"))

    done = gymctl(*PREPARE, cwd=folder)

    assert done.returncode == 0, done.stderr
    assert not mine & set(containers())


def test_ctrl_c_ends_and_removes_its_container(folder: Path) -> None:
    program, mine = running(folder)
    shown = subprocess.run(["docker", "inspect", *mine], capture_output=True, text=True, check=True).stdout
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)

    assert program.returncode == 130
    assert json.loads(shown)[0]["Config"]["User"] not in ("", "0")
    assert TOKEN not in shown
    assert not mine & set(containers())
    assert not (folder / "sums" / "data").exists()
