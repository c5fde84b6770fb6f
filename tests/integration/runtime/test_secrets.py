"""Keys arrive byte for byte in a server process, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakes import secrets

from gymctl.runtime import keeper

if TYPE_CHECKING:
    from conftest import Folder


def test_keys_arrive_byte_for_byte_and_nowhere_else(folder: Folder) -> None:
    environ = secrets.given(folder)
    up = folder.up("-d", *secrets.arguments(), **environ)
    assert up.returncode == 0, up.stderr
    secrets.arrived(folder)
    selection = ("tiny.yaml", *secrets.arguments())
    told = [
        folder.run(*command, **environ)
        for command in (
            ("logs",),
            ("ps", "--json"),
            ("config", "show", *selection),
            ("config", "show", "--json", *selection),
            ("config", "explain", "teller", *selection),
            ("config", "check", *selection),
        )
    ]
    assert [done.returncode for done in told] == [0] * len(told), told[-1].stderr
    secrets.stays_hidden(folder, [text for done in (up, *told) for text in (done.stdout, done.stderr)])
    secrets.processes_hide_them(row.pid for row in keeper.find(folder.parts))
    assert folder.run("down").returncode == 0
    secrets.is_gone(folder)
