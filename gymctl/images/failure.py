"""Finds in a failed build's log the lines that tell why: the package that does not install, not a wall."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_LINES = 14
_STEP_LINE = re.compile(r"^(?:#\d+ )?\d+\.\d+ ?")
_FAILED_STEP = re.compile(r"^(#\d+) ERROR: ")
# What follows uv's first line and says more than the output of a build that failed.
_CAUSE = re.compile(r"^\s*(cause:|[├╰]─▶)")
_ADVICE = "hint: Build failures usually"
# Where uv's, pip's and Python's own explanations begin.
_BEGINS = re.compile(r"^\s*(×|error:|ERROR:|Traceback |E: )")
_MOUNTS = re.compile(r"--mount=\S+\s*")
_EXIT_CODE = re.compile(r"did not complete successfully: (exit code: \d+)")
_HINTS = (
    (
        re.compile(r"because the network was disabled", re.I),
        "requirements.lock does not go with the packages of this gymctl's base:"
        " `gymctl build NAME --lock-requirements`",
    ),
    (
        re.compile(r"certificate|UnknownIssuer|CERTIFICATE_VERIFY_FAILED", re.I),
        "builds do not trust this network's certificate: GYMCTL_CA_BUNDLE=<PEM file>, or `build.ca_bundle`",
    ),
    (
        re.compile(r"no space left on device", re.I),
        "no disk space left: `docker system df`, `docker builder prune`",
    ),
    (
        re.compile(r"\b(401|403|407)\b|proxy authentication required", re.I),
        "the index or the proxy wants a login: it stands in the URL, as in `build.index_url`",
    ),
    (
        re.compile(r"dns error|failed to lookup|name resolution|Connection refused|tcp connect", re.I),
        "the build reached no package index: `build.index_url` and `build.proxy` say where it is",
    ),
    (
        re.compile(r"from versions: none", re.I),  # pip says no more, also when nothing answered
        "the package index was not reached or does not have it: `build.index_url` says where it is",
    ),
    (
        re.compile(r"No solution found|No matching distribution|was not found in the package registry", re.I),
        "correct the requirement in the server's requirements.txt (or pyproject.toml)",
    ),
    (
        re.compile(r"Failed to build|build backend returned an error", re.I),
        "it has no wheel for the server's Python and does not build there; another version may have one",
    ),
)


def explain(log: Sequence[str]) -> tuple[list[str], str | None]:
    """The failing step's own words, at most MAX_LINES, and what to try. `log`: `--progress plain` output."""
    lines = step_output(log) or _errors(log) or [line for line in log if line.strip()][-MAX_LINES:]
    if not any(_BEGINS.match(line) for line in lines):
        # A step of the server's own Dockerfile: say which, its output may not.
        lines = [*_step(log), *lines]
    lines = excerpt(lines)
    return lines, hint_for([*lines, *_errors(log)])


def excerpt(lines: Sequence[str]) -> list[str]:
    """From the first error on, at most MAX_LINES: its beginning, which names the package, and its end."""
    lines = [line for line in lines if line.strip() and not line.startswith(_ADVICE)]
    starts = [number for number, line in enumerate(lines) if _BEGINS.match(line)]
    lines = lines[starts[0] :] if starts else lines
    if len(lines) <= MAX_LINES:
        return lines
    head = 1
    while head < MAX_LINES // 2 and _CAUSE.match(lines[head]):
        head += 1
    return [*lines[:head], "...", *lines[-(MAX_LINES - head - 1) :]]


def hint_for(lines: Sequence[str]) -> str | None:
    """What to try, where the lines say what is wrong."""
    text = "\n".join(lines)
    return next((hint for pattern, hint in _HINTS if pattern.search(text)), None)


def _step(log: Sequence[str]) -> list[str]:
    """The command that failed and its exit code."""
    names = [line.removeprefix(" > ").rstrip(":") for line in log if line.startswith(" > [")]
    codes = [found.group(1) for line in log if (found := _EXIT_CODE.search(line))]
    return [f"{without_mounts(name)} ({codes[-1]})" if codes else without_mounts(name) for name in names[:1]]


def without_mounts(command: str) -> str:
    """A RUN command as a person wants to read it."""
    return _MOUNTS.sub("", command)


def step_output(log: Sequence[str]) -> list[str]:
    """What the failing step wrote: all of it from its own lines, `#7 0.3 ...`, else the end of it, which
    BuildKit repeats between `------`, ` > [3/5] RUN ...:` and `------`."""
    failed = next((found[1] for line in log if (found := _FAILED_STEP.match(line))), None)
    whole = [line for line in log if failed and line.startswith(f"{failed} ") and _STEP_LINE.match(line)]
    longer = max(whole, _repeated(log), key=len)
    return [text for line in longer if (text := _STEP_LINE.sub("", line).rstrip())]


def _repeated(log: Sequence[str]) -> list[str]:
    begin = next((number for number, line in enumerate(log) if line.startswith(" > [")), None)
    if begin is None:
        return []
    output = log[begin + 1 :]
    end = next((number for number, line in enumerate(output) if line.startswith("------")), len(output))
    return list(output[:end])


def _errors(log: Sequence[str]) -> list[str]:
    return [line for line in log if line.startswith(("ERROR:", "error:"))]
