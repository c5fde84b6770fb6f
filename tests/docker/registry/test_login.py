"""A registry that wants a login: what is said without one, and no password in any output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.own_registry import PASSWORD, LocalRegistry
from fakes.program import gymctl

from gymctl.artefacts import content as contents
from gymctl.artefacts.content import Item
from gymctl.artefacts.pack import pack

WRONG = "wrong-password-1"


@pytest.fixture
async def reference(closed_registry: LocalRegistry, docker_login: Callable[[str, str], None]) -> str:
    """A benchmark in there, without images."""
    docker_login(closed_registry.host, PASSWORD)
    artefact = pack(
        contents.content(
            name="tool", benchmark="tool", files={"benchmarks/tool/config.yaml": Item.made(b"{}")}
        )
    )
    async with closed_registry.client() as client:
        for blob, item in artefact.blobs:
            await client.put_blob("bench/tool", blob, item.chunks())
        await client.put_manifest("bench/tool", "latest", artefact.manifest)
    return f"{closed_registry.host}/bench/tool:latest"


@pytest.mark.parametrize(("password", "code"), [(PASSWORD, 0), (WRONG, 3), (None, 3)])
def test_who_may_read_a_benchmark(
    reference: str,
    docker_login: Callable[[str, str], None],
    tmp_path: Path,
    password: str | None,
    code: int,
) -> None:
    host = reference.partition("/")[0]
    if password is not None:
        docker_login(host, password)
    else:
        (tmp_path / "docker-config" / "config.json").unlink()
    commands: list[tuple[str, ...]] = [("verify", reference)]
    if code:
        commands += [("push", "weather", "--registry", f"{host}/bench")]
    for command in commands:
        done = gymctl(*command, cwd=tmp_path, environ={"XDG_CACHE_HOME": str(tmp_path)})
        assert done.returncode == code, done.stderr
        if code:
            assert f"docker login {host}" in done.stderr
        for secret in (PASSWORD, WRONG):
            assert secret not in done.stdout + done.stderr
