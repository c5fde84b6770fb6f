"""A budget of connections, divided over workers (CONTRACT 2.6)."""

from __future__ import annotations

import pytest

from gymctl.contract.part import Pool
from gymctl.contract.pools import Machine, PoolTooSmall, Shares, divided, line, warnings
from gymctl.transport import Transport

ROOMY = Machine(descriptors=65535, ports=(32768, 60999))


def test_b68_each_worker_gets_its_share() -> None:
    assert divided(Pool(limit=102400, limit_per_host=1024), 4) == Shares(25600, 256)
    assert divided(Pool(limit_per_host=8), 4).limit_per_host == 2


def test_b68_a_share_of_nothing_is_refused_with_both_numbers() -> None:
    with pytest.raises(PoolTooSmall, match="3 connections cannot be divided over 4 workers") as caught:
        divided(Pool(limit_per_host=3), 4)
    assert caught.value.field == "limit_per_host"
    with pytest.raises(PoolTooSmall):
        Transport(Pool(limit=3), workers=4)


def test_b68_no_limit_stays_no_limit_and_says_so() -> None:
    assert divided(Pool(limit=0, limit_per_host=0), 4) == Shares(0, 0)
    assert "each worker unlimited and unlimited" in line(Pool(limit=0, limit_per_host=0), 4, ROOMY)


@pytest.mark.parametrize(
    ("limit", "per_host", "effective"), [(100, 1000, 100), (0, 1000, 1000), (100, 0, 100), (1000, 100, 100)]
)
def test_one_host_never_gets_more_than_all(limit, per_host, effective) -> None:
    assert divided(Pool(limit=limit, limit_per_host=per_host), 1).limit_per_host == effective


def test_the_line_names_workers_budget_share_and_what_the_machine_allows() -> None:
    assert line(Pool(), 4, ROOMY) == (
        "connections: 102400 in all, 1024 to one host, for 4 workers; each worker 25600 and 256; "
        "open files 65535, ephemeral ports 32768-60999"
    )


def told(machine: Machine = ROOMY, workers: int = 4, **pool: int) -> list[str]:
    return list(warnings(Pool(**pool), workers, machine))


def test_what_is_intended_must_fit_into_a_worker() -> None:
    assert told(limit=400, intended=400) == []
    assert told(limit=403, intended=401) == [
        "101 calls at once are intended for each worker, but it may open 100: "
        "raise global_aiohttp_connector_limit"
    ]
    assert "raise global_aiohttp_connector_limit_per_host" in told(limit_per_host=40, intended_per_host=41)[0]
    assert told(limit=0, limit_per_host=0, intended=60000, intended_per_host=20000) == []


def test_what_is_intended_must_fit_into_the_machine() -> None:
    small = Machine(descriptors=256, ports=(40000, 40099))
    assert told(small, 1, intended=255) == []
    assert told(small, 1, intended=256) == [
        "256 calls at once are intended for each worker, but it may open 256 files: "
        "raise its limit (ulimit -n)"
    ]
    assert told(small, 4, intended_per_host=100) == []
    assert told(small, 4, intended_per_host=101) == [
        "101 calls at once to one host are intended, but there are 100 ephemeral ports: "
        "widen net.ipv4.ip_local_port_range"
    ]
    assert told(Machine(descriptors=None, ports=None), 1, intended=1024, intended_per_host=1024) == []
