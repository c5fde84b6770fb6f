"""What is told of a container's image."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gymctl.runtime import container_facts
from gymctl.runtime.container_facts import Container

ID, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


def engine(*digests: str) -> Any:
    """With one container, which has no shell, and its image."""
    container = {"Image": ID, "Config": {"Image": "gymctl/w:1", "Labels": {}}}

    def no_shell(*_: object, **__: object) -> None:
        raise OSError

    api = SimpleNamespace(
        inspect_container=lambda _: container,
        inspect_image=lambda _: {"Id": ID, "RepoDigests": list(digests)},
        exec_create=no_shell,
    )
    compose = SimpleNamespace(version=lambda: "v2.26.1")
    return SimpleNamespace(
        api=SimpleNamespace(api=api),
        cli=SimpleNamespace(compose=compose),
        facts=SimpleNamespace(version="26"),
    )


@pytest.mark.parametrize(
    ("digests", "told"),
    [
        ((), None),
        ((f"h.example/p/w@{OTHER}",), f"h.example/p/w@{OTHER}"),
        ((f"someone/w@{OTHER}",), f"someone/w@{OTHER}"),  # of Docker Hub
        ((f"gymctl/w@{ID}",), None),  # the containerd store's own: it was never pushed
        ((f"gymctl/w@{ID}", f"h.example/p/w@{ID}"), f"h.example/p/w@{ID}"),
    ],
)
async def test_a_digest_is_one_that_a_registry_knows(
    tmp_path: Any, digests: tuple[str, ...], told: str
) -> None:
    row = Container("c", "c", "weather", "gymctl/w:1", "running")
    facts = await container_facts.look(engine(*digests), lambda: [row], tmp_path / "compose.yaml")
    assert facts.servers["weather"].digest == told
    assert facts.servers["weather"].image_id == ID
