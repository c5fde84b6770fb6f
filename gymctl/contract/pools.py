"""How a server group's budget of connections is divided over its worker processes (CONTRACT 2.6).

0 means unlimited and stays 0. A limit that leaves nothing for a worker cannot be obeyed: rounding it to 0
would lift it. Intended concurrency limits nothing, it is what warnings are about; it is rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gymctl.contract.part import Pool


class PoolTooSmall(ValueError):
    """A positive limit becomes 0 for each worker."""

    def __init__(self, field: str, limit: int, workers: int) -> None:
        super().__init__(f"{limit} connections cannot be divided over {workers} workers")
        self.field = field
        """Name of the Pool's field."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What one worker may open: in all, and to one host."""

    limit: int
    limit_per_host: int


def divided(pool: Pool, workers: int) -> Shares:
    """Raises PoolTooSmall."""
    shares = Shares(_share(pool, "limit", workers), _share(pool, "limit_per_host", workers))
    bounds = [bound for bound in (shares.limit, shares.limit_per_host) if bound]
    return Shares(shares.limit, min(bounds, default=0))


def _share(pool: Pool, field: str, workers: int) -> int:
    limit: int = getattr(pool, field)
    share = limit // max(workers, 1)
    if limit > 0 and share == 0:
        raise PoolTooSmall(field, limit, workers)
    return share


@dataclass(frozen=True, slots=True)
class Machine:
    """What a process finds where it runs; None when that is not known."""

    descriptors: int | None
    """Soft limit of open files."""
    ports: tuple[int, int] | None
    """First and last ephemeral port."""


def line(pool: Pool, workers: int, machine: Machine) -> str:
    """What a server says of its pool when it starts."""
    shares = divided(pool, workers)
    ports = "unknown" if machine.ports is None else "{}-{}".format(*machine.ports)
    return (
        f"connections: {_bound(pool.limit)} in all, {_bound(pool.limit_per_host)} to one host, "
        f"for {workers} {'worker' if workers == 1 else 'workers'}; each worker "
        f"{_bound(shares.limit)} and {_bound(shares.limit_per_host)}; "
        f"open files {_bound(machine.descriptors or 0)}, ephemeral ports {ports}"
    )


def warnings(pool: Pool, workers: int, machine: Machine) -> Iterator[str]:
    """What will not work out when as much happens at once as the user intends."""
    shares = divided(pool, workers)
    for intended, bound, name in (
        (pool.intended, shares.limit, "global_aiohttp_connector_limit"),
        (pool.intended_per_host, shares.limit_per_host, "global_aiohttp_connector_limit_per_host"),
    ):
        each = _each(intended, workers)
        if bound and each > bound:
            yield f"{each} calls at once are intended for each worker, but it may open {bound}: raise {name}"
    most = max(_each(pool.intended, workers), _each(pool.intended_per_host, workers))
    if machine.descriptors is not None and most >= machine.descriptors:
        yield (
            f"{most} calls at once are intended for each worker, but it may open {machine.descriptors} "
            "files: raise its limit (ulimit -n)"
        )
    if machine.ports is not None:
        count = machine.ports[1] - machine.ports[0] + 1
        if (pool.intended_per_host or 0) > count:
            yield (
                f"{pool.intended_per_host} calls at once to one host are intended, but there are {count} "
                "ephemeral ports: widen net.ipv4.ip_local_port_range"
            )


def _each(intended: int | None, workers: int) -> int:
    return -(-(intended or 0) // max(workers, 1))


def _bound(limit: int) -> str:
    return str(limit) if limit else "unlimited"
