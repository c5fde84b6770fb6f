"""Several workers of one server: they write one file, and count together how often something was asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

IMAGE = Path(__file__).parents[1]
WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {image!r})
from asked import Asked
from tape import Tape, Taken
tape = Tape(Path({file!r}), can_write=True)
for number in range(100):
    body = {{"input": ["x" * 5000, str(number)]}}
    asked = Asked.of("policy_model", "/v1/responses", body, str)
    rollout, answer = sys.argv[1] + "-0", b'{{"n":%d}}' % number
    tape.append(asked, rollout, 0, Taken(200, "application/json", answer))
    assert tape.answer(tape.recorded(asked.digest, rollout)[0].place).body == answer
"""
COUNTER = """
import sys
from pathlib import Path
sys.path.insert(0, {image!r})
from counting import ManyWorkers
counting = ManyWorkers(Path({file!r}))
print([counting.next(b"k" * 16) for number in range(200)])
"""


def in_four_processes(program: str) -> list[str]:
    command = [sys.executable, "-c", program]
    started = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4
    return outputs


def test_workers_write_whole_lines_into_one_file(tmp_path: Path) -> None:
    file = tmp_path / "run.cassette"
    in_four_processes(WRITER.format(image=str(IMAGE), file=str(file)))
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [line for line in lines if "gymctl_cassette" in line] == [lines[0]]
    answers = Counter(line["rollout"] for line in lines if "answer" in line)
    assert answers == {f"{number}-0": 100 for number in range(4)}


def test_workers_count_together(tmp_path: Path) -> None:
    outputs = in_four_processes(COUNTER.format(image=str(IMAGE), file=str(tmp_path / "asked")))
    counted = [number for text in outputs for number in json.loads(text)]
    assert sorted(counted) == list(range(800))
