"""Packages with another hash than locked are found in what uv and pip really say, as builds show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.images import failure, mismatch
from gymctl.images.mismatch import Mismatch
from gymctl.programs import Finished
from gymctl.runtime import envs, releases

GOOD = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274"
BAD = "00000000ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274"
WORSE = "00000000468e7eb6ec65b95b99d3a2836546063f63acc5171de367e834932a81"
# Recorded: uv 0.13.9 and pip 25.1.1 in builds of BuildKit 0.12 (Engine 26.1.5), a lock with changed hashes.
UV = f"""\
#6 [stage-0 2/3] RUN cd /tmp/server && uv pip install --quiet --no-deps --require-hashes -r requirements.lock
#6 0.791 error: Failed to download `six==1.17.0`
#6 0.793   cause: Hash mismatch for `six==1.17.0`
#6 0.794
#6 0.794          Expected:
#6 0.794            sha256:{BAD}
#6 0.795            sha256:{WORSE}
#6 0.795
#6 0.795          Computed:
#6 0.796            sha256:{GOOD}
#6 ERROR: process "uv pip install" did not complete successfully: exit code: 1
------
 > [stage-0 2/3] RUN cd /tmp/server && uv pip install --quiet --no-deps --require-hashes -r requirements.lock:
: Failed to download `six==1.17.0`
0.793   cause: Hash mismatch for `six==1.17.0`
0.794
0.794          Expected:
0.794            sha256:{BAD}
0.795            sha256:{WORSE}
0.795
0.795          Computed:
0.796            sha256:{GOOD}
------
ERROR: failed to solve: process "uv pip install" did not complete successfully: exit code: 1"""
WHEEL = "https://files.pythonhosted.org/packages/b7/ce/149a/six-1.17.0-py2.py3-none-any.whl"
PIP = f"""\
#7 [stage-0 3/3] RUN python3 -m pip install --quiet --require-hashes --only-binary :all: -r /tmp/lock.txt
#7 2.166 Collecting six==1.17.0 (from -r /tmp/lock.txt (line 1))
#7 2.487 ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the \
package versions, please update the hashes. Otherwise, examine the package contents carefully; someone may \
have tampered with them.
#7 2.487     six==1.17.0 from {WHEEL} (from -r /tmp/lock.txt (line 1)):
#7 2.487         Expected sha256 {WORSE}
#7 2.487         Expected     or {BAD}
#7 2.487              Got        {GOOD}
#7 2.487
#7 2.305   Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)
#7 ERROR: process "pip install" did not complete successfully: exit code: 1
------
ERROR: failed to solve: process "pip install" did not complete successfully: exit code: 1"""


@pytest.mark.parametrize(("log", "expected"), [(UV, (BAD, WORSE)), (PIP, (WORSE, BAD))])
def test_package_expected_and_found_are_read(log: str, expected: tuple[str, ...]) -> None:
    lines = failure.step_output(log.splitlines())
    assert mismatch.find(lines) == [Mismatch("six==1.17.0", expected, GOOD)]


def test_pip_may_name_several() -> None:
    lines = failure.step_output(PIP.splitlines())
    begin = next(number for number, line in enumerate(lines) if "six==1.17.0 from" in line)
    more = [line.replace("six==1.17.0", "idna==3.10") for line in lines[begin : begin + 4]]
    found = mismatch.find([*lines[: begin + 4], *more])
    assert [one.package for one in found] == ["six==1.17.0", "idna==3.10"]


@pytest.mark.parametrize("log", [UV, PIP])
def test_what_is_cut_off_is_no_mismatch(log: str) -> None:
    whole = failure.step_output(log.splitlines())
    last = next(number for number, line in enumerate(whole) if GOOD in line)
    for end in range(last + 1):
        assert mismatch.find(whole[:end]) == []


def test_other_failures_are_none() -> None:
    lines = ["error: Failed to download `six==1.17.0`", f"  cause: sha256:{GOOD}", f"Expected sha256 {BAD}"]
    assert mismatch.find(lines) == []


@pytest.mark.parametrize("is_own", [True, False])
def test_local_processes_are_refused_their_packages_too(is_own: bool) -> None:
    lines = failure.step_output(UV.splitlines())
    hashed, base = Path("tiny/requirements.lock"), Path("base.lock")
    done = Finished(f"uv pip install -r {hashed if is_own else base}", 1, "", tuple(lines))
    error = envs._failed(envs.Recipe(servers=("tiny",), lock=base, hashed=hashed), done)
    assert (error.exit_code, error.where) == (9, str(hashed if is_own else base))
    assert "`tiny`" in error.what
    assert f"`six==1.17.0`: expected sha256 {BAD[:12]} or 1 more, found {GOOD[:12]}" in error.what
    assert ("--lock-requirements" in str(error.hint)) is is_own


def test_a_package_that_is_not_what_its_index_says_is_refused() -> None:
    done = Finished("uv pip install", 1, "", tuple(failure.step_output(UV.splitlines())))
    error = releases._failed("six==1.17.0", done)
    assert (error.exit_code, error.where) == (9, "--search-dir six==1.17.0")
    assert f"found {GOOD[:12]}" in error.what
