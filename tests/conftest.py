"""Options of the test program that pytest must know before it reads the folders below."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, not what is wrong. The examples are the same each
# time; others are looked for with --hypothesis-profile=search.
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
settings.register_profile("busy", settings.get_profile("search"), derandomize=True)
settings.load_profile("busy")


def pytest_configure() -> None:
    """What runs tests in the background (`&`, `nohup`) may ignore signals, and programs inherit that."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contract", "the contract suite, tests/integration/contract")
    group.addoption(
        "--contract-target",
        action="append",
        default=[],
        metavar="URL",
        help="run it against the project behind this head, or, as ROLE=URL, against one server; repeatable",
    )
    group.addoption(
        "--contract-upstream",
        type=int,
        default=None,
        metavar="PORT",
        help="where the target's model server finds its endpoint on this machine; the suite listens there",
    )
    group.addoption(
        "--contract-tools",
        default=None,
        metavar="URL",
        help="how the target's agents dial its resources server, where that is not how this machine does",
    )
