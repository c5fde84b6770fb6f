"""A failed build is told in the words of the package that did not install."""

from __future__ import annotations

from gymctl.images.failure import MAX_LINES, explain

RESOLUTION = """\
#10 [2/4] RUN --mount=type=secret,id=ca uv pip install -r /tmp/requirements.txt
#10 0.412 error: No solution found when resolving dependencies
#10 ERROR: process "/bin/sh -c uv pip install" did not complete successfully: exit code: 1
------
 > [2/4] RUN --mount=type=secret,id=ca uv pip install -r /tmp/requirements.txt:
0.301 Using Python 3.13
0.412 error: No solution found when resolving dependencies
0.412   cause: Because nope was not found in the package registry and you require nope, we can conclude
------
Dockerfile:6
--------------------
   5 |     RUN something
--------------------
ERROR: failed to solve: process "/bin/sh -c uv pip install" did not complete successfully: exit code: 1
""".splitlines()


def test_only_the_lines_of_the_resolver_are_kept() -> None:
    lines, hint = explain(RESOLUTION)
    assert lines == [
        "error: No solution found when resolving dependencies",
        "  cause: Because nope was not found in the package registry and you require nope, we can conclude",
    ]
    assert hint is not None
    assert "requirement" in hint


def test_a_step_of_an_own_dockerfile_is_named_with_its_exit_code() -> None:
    log = [
        "------",
        " > [2/2] RUN --mount=type=cache,target=/x make all:",
        "0.2 nothing to be done",
        "------",
        'ERROR: failed to solve: process "/bin/sh -c make all" did not complete successfully: exit code: 7',
    ]
    lines, _ = explain(log)
    assert lines == ["[2/2] RUN make all (exit code: 7)", "nothing to be done"]


def test_a_long_output_keeps_its_beginning_and_its_end() -> None:
    log = ["------", " > [2/2] RUN x:", "1.0 error: first", *(f"1.0 line {n}" for n in range(500)), "------"]
    lines, _ = explain(log)
    assert len(lines) == MAX_LINES
    assert (lines[0], lines[-1]) == ("error: first", "line 499")


def test_the_cause_outside_the_package_gives_the_hint() -> None:
    certificate = [
        "------",
        " > [2/2] RUN x:",
        "1.0 error: invalid peer certificate: UnknownIssuer",
        "------",
    ]
    assert "GYMCTL_CA_BUNDLE" in str(explain(certificate)[1])
    disk = ["ERROR: failed to solve: write /blobs/x: no space left on device"]
    lines, hint = explain(disk)
    assert lines[-1] == disk[0]
    assert "disk" in str(hint)
    silent = [
        "#5 9.1 ERROR: Could not find a version that satisfies the requirement uv==0.1 (from versions: none)",
        "#5 9.1 ERROR: No matching distribution found for uv==0.1",
        "#5 ERROR: process did not complete successfully: exit code: 1",
    ]
    assert "build.index_url" in str(explain(silent)[1])


def test_a_log_of_unknown_form_gives_its_last_lines() -> None:
    assert explain(["", "something odd", ""])[0] == ["something odd"]


COMPILATION = [
    "#6 [2/4] RUN uv pip install -r requirements.txt",
    "#6 0.3 error: Failed to build `badpkg @ file:///tmp/server/badpkg`",
    "#6 0.3   cause: The build backend returned an error",
    *(f"#6 0.3          noise {number}" for number in range(600)),
    "#6 0.3          error: [Errno 2] No such file or directory: 'gcc'",
    "#6 0.3 hint: Build failures usually indicate a problem with the package or the build environment",
    '#6 ERROR: process "/bin/sh -c uv pip install" did not complete successfully: exit code: 1',
    "------",
    " > [2/4] RUN uv pip install -r requirements.txt:",
    "0.3          noise 599",
    "0.3          error: [Errno 2] No such file or directory: 'gcc'",
    "------",
]


def test_a_package_that_does_not_compile_is_named_and_its_last_lines_shown() -> None:
    lines, hint = explain(COMPILATION)
    assert lines[0] == "error: Failed to build `badpkg @ file:///tmp/server/badpkg`"
    assert lines[1] == "  cause: The build backend returned an error"
    assert lines[-1].strip() == "error: [Errno 2] No such file or directory: 'gcc'"
    assert len(lines) == MAX_LINES
    assert hint is not None
    assert "wheel" in hint
