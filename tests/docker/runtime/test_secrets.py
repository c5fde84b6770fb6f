"""Keys arrive byte for byte in a server's container, and nowhere else."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from fakes import secrets


def test_keys_arrive_byte_for_byte_and_nowhere_else(folder: Any, containers: Any) -> None:
    """B44."""
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
    assert folder.run("down").returncode == 0
    secrets.is_gone(folder)


def test_the_build_block_is_told_to_no_server_and_written_nowhere(folder: Any, containers: Any) -> None:
    """Its proxy is for plain http, which no build of this test uses."""
    planted = ("planted-clerk", "planted-pa55word", "walls.invalid")
    folder.server("tiny")
    block = {"proxy": {"http": "http://planted-clerk:planted-pa55word@walls.invalid:3128"}}
    (folder.path / "env.yaml").write_text(json.dumps({"build": block}))
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr
    texts = [up.stdout, up.stderr, folder.run("logs").stdout]
    for server in ("tiny", "head"):
        known = containers.inspect(server)
        texts += [json.dumps(known), containers.docker("logs", known["Id"])]
        texts += [
            containers.docker(*look, known["Image"]) for look in (("history", "--no-trunc"), ("inspect",))
        ]
    with urllib.request.urlopen(f"http://127.0.0.1:{folder.head_port}/global_config_dict_yaml") as answer:
        texts.append(answer.read().decode())
    files = [path for path in folder.parts.parent.rglob("*") if path.is_file()]
    assert folder.parts / "tiny.json" in files
    texts += [path.read_text("utf-8", "replace") for path in files]
    assert [one for one in planted if any(one in text for text in texts)] == []
    shown = folder.run("config", "show", "tiny.yaml").stdout
    assert "http://****@walls.invalid:3128" in shown
