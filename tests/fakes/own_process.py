"""One server as a process of its own, in an interpreter that holds its packages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gymctl.contract.part import ServerPart
from gymctl.transport import Transport, TransportError

REPO = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def own_process(
    part: ServerPart, folder: Path, python: Path, file: Path, transport: Transport, *, seconds: float = 90
) -> AsyncIterator[str]:
    """Its URL, once it answers. folder: the server's own. file: where its part is written."""
    await asyncio.to_thread(file.write_text, part.model_dump_json())
    environ = {**os.environ, "GYMCTL_PART": str(file), "PYTHONPATH": str(REPO)}
    process = await asyncio.create_subprocess_exec(python, "-m", "gymctl.servers", cwd=folder, env=environ)
    address = f"http://127.0.0.1:{part.bind_port}"
    try:
        async with asyncio.timeout(seconds):
            while not await _answers(transport, address):
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield address
    finally:
        process.terminate()
        await process.wait()


async def _answers(transport: Transport, address: str) -> bool:
    try:
        return not (await transport.call("GET", f"{address}/readyz", retry_seconds=0)).is_error
    except TransportError:
        return False
