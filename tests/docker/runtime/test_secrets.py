"""Keys arrive byte for byte in a server's container, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

from fakes import secrets


def test_keys_arrive_byte_for_byte_and_nowhere_else(folder: Any, containers: Any) -> None:
    environ = secrets.given(folder)
    up = folder.up("-d", *secrets.arguments(), **environ)
    assert up.returncode == 0, up.stderr
    secrets.arrived(folder)
    logs = folder.run("logs")
    texts = [text for done in (up, logs) for text in (done.stdout, done.stderr)]
    for server in ("teller", "head"):
        known = containers.inspect(server)
        texts.append(json.dumps(known))
        texts.append(containers.docker("logs", known["Id"]))
        texts.append(containers.docker("history", "--no-trunc", known["Image"]))
        for file in ("environ", "cmdline"):
            texts.append(containers.docker("exec", known["Id"], "cat", f"/proc/1/{file}"))
    secrets.stays_hidden(folder, texts)
