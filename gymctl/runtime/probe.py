"""Does a server answer, and is it the one we mean? The single HTTP question of readiness and of `ps`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from pydantic import ValidationError

from gymctl.compose.names import HEAD
from gymctl.contract.part import HeadStatus
from gymctl.contract.servers import ServerTable

PROBE_SECONDS = 5.0
STATUS_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: whether it counts, and if not, why."""

    is_ready: bool
    stranger: str = ""
    """Who answered instead, when somebody else did."""


@asynccontextmanager
async def client(seconds: float = PROBE_SECONDS) -> AsyncIterator[aiohttp.ClientSession]:
    """One session for many probes. Proxies are not asked: every address is this machine's."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False) as session:
        yield session


async def foreign(session: aiohttp.ClientSession, url: str) -> Answer:
    """`GET /` of a server that cannot say who it is: any status counts (DESIGN D5)."""
    try:
        async with session.get(f"{url}/", allow_redirects=False):
            return Answer(is_ready=True)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return Answer(is_ready=False)


async def server(session: aiohttp.ClientSession, url: str, project: str, name: str) -> Answer:
    """`GET /readyz` with our project's and server's name on the answer."""
    try:
        async with session.get(f"{url}/readyz") as response:
            found = (response.headers.get("x-gymctl-project"), response.headers.get("x-gymctl-server"))
            if found == (project, name):
                return Answer(is_ready=response.status == 200)
            return Answer(is_ready=False, stranger=_stranger(found))
    except (aiohttp.ClientError, TimeoutError, OSError):
        return Answer(is_ready=False)


async def head(session: aiohttp.ClientSession, url: str, project: str) -> HeadStatus | Answer:
    """The head's status when it is our project's; else who answers there, if anybody."""
    try:
        async with session.get(f"{url}/gymctl/status") as response:
            status = HeadStatus.model_validate_json(await response.read())
    except ValidationError:
        return Answer(is_ready=False, stranger="a server that is not gymctl's")
    except (aiohttp.ClientError, TimeoutError, OSError):
        return Answer(is_ready=False)
    if status.project != project:
        return Answer(is_ready=False, stranger=f"the head of project `{status.project}`")
    return status


async def ready(
    project: str, head_url: str, table: ServerTable, strangers: Collection[str] = ()
) -> dict[str, bool]:
    """Who answers right now; the head counts when all it watches is ready. `strangers`: foreign servers."""
    async with client(STATUS_SECONDS) as session:
        names = list(table.servers)
        answers = await asyncio.gather(
            head(session, head_url, project),
            *(
                foreign(session, table[name].url)
                if name in strangers
                else server(session, table[name].url, project, name)
                for name in names
            ),
        )
    first, *others = answers
    is_ready = {HEAD: isinstance(first, HeadStatus) and first.ready}
    return is_ready | {
        name: isinstance(answer, Answer) and answer.is_ready
        for name, answer in zip(names, others, strict=True)
    }


def _stranger(found: tuple[str | None, str | None]) -> str:
    project, name = found
    return f"`{name}` of project `{project}`" if project else "a server that is not gymctl's"
