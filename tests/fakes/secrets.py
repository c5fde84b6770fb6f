"""Keys with every hard character, given in every way: whole in their server and nowhere else."""

from __future__ import annotations

import hashlib
import json
import stat
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from gymctl.config.reading.text import literal
from gymctl.paths import ProjectPaths

TELLER = """\
import hashlib

from starlette.requests import Request
from starlette.responses import JSONResponse

from gymctl.servers import ResourcesConfig, ResourcesServer, VerifyRequest, VerifyResponse


class Config(ResourcesConfig):
    secrets: dict[str, str]


class Teller(ResourcesServer):
    config: Config

    def routes(self, app):
        super().routes(app)
        self.get(app, "/digests", self.digests)

    async def digests(self, request: Request) -> JSONResponse:
        found = self.config.secrets
        return JSONResponse({key: hashlib.sha256(text.encode()).hexdigest() for key, text in found.items()})

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=1.0)


app = Teller.app()
"""
HARD = {
    "dollars_key": "s3cr-$HOME$$x$",
    "reference_key": "s3cr-${oc.env:HOME}-${",
    "backslash_key": "s3cr-\\\\${a}\\n\\",
    "hash_key": "s3cr #1: {a} [b], &c *d !e |f >g %h @i `j",
    "quotes_key": "s3cr'\"''\"\"",
    "lines_key": "s3cr one\ntwo\r\nthree\n\n",
    "blanks_key": " \ts3cr blanks \t ",
    "star_key": "*s3cr-star",
    "ampersand_key": "&s3cr-ampersand",
    "tag_key": "!s3cr-tag",
    "percent_key": "%s3cr-percent%20",
    "wide_key": "s3cr-ключ-密钥-🔑-\u2028-ÿ",
    "control_key": "s3cr-\x01\x1b[31m\x7f",
    "long_key": "s3cr-" + "x$y" * 21845,
    "digits_key": "0012345678",
    "word_key": "s3cr-null",
}
HIDDEN = {name: text for name, text in HARD.items() if name != "digits_key"}
"""A number is hidden by its key only: hunting it in every text would ruin ordinary numbers."""


WAYS = ("env", "config", "file", "environ")
FLAG = HARD["reference_key"]
TOKEN = "s3cr-token"


def given(folder: Any) -> dict[str, str]:
    """A server that can tell which keys it has, and all keys, given in every way: in env.yaml, a config file,
    a file for each, and the environment that is returned."""
    names = [f"{way}_{name}" for way in WAYS for name in HARD]
    secrets = {name: f"${{{name}}}" for name in (*names, "policy_api_key", "token_key")}
    folder.server("teller", TELLER, secrets=secrets)
    (folder.path / "env.yaml").write_text(_yaml("env"), encoding="utf-8")
    variables = "".join(f"environ_{name}: ${{oc.env:ENVIRON_{name.upper()}}}\n" for name in HARD)
    (folder.path / "keys.yaml").write_text(_yaml("config") + variables, encoding="utf-8")
    for name, text in HARD.items():
        (folder.path / f"file_{name}").write_bytes(text.encode() + b"\n")
    return {f"ENVIRON_{name.upper()}": text for name, text in HARD.items()}


def arguments() -> list[str]:
    files = [part for name in HARD for part in ("--set-file", f"file_{name}=file_{name}")]
    return ["keys.yaml", *files, "--model-api-key", FLAG, f'++token_key="{TOKEN}"']


def _yaml(way: str) -> str:
    return yaml.safe_dump({f"{way}_{name}": literal(text) for name, text in HARD.items()}, allow_unicode=True)


def arrived(folder: Any) -> None:
    """The server has every key, byte for byte."""
    port = folder.state["table"]["servers"]["teller"]["address"]["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/digests", timeout=60) as answer:
        got = json.loads(answer.read())
    texts = {f"{way}_{name}": text for way in WAYS for name, text in HARD.items()}
    texts |= {"policy_api_key": FLAG, "token_key": TOKEN}
    wanted = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    assert {name for name in wanted if got.get(name) != wanted[name]} == set()


def is_in(data: bytes) -> list[str]:
    """The keys that `data` gives away, as they are or as JSON, YAML and Python write them."""
    found = []
    for name, text in HIDDEN.items():
        spellings = {text.strip(), json.dumps(text.strip())[1:-1], repr(text.strip())[1:-1]}
        spellings |= {json.dumps(text.strip(), ensure_ascii=False)[1:-1], text.strip().replace("$", "$$")}
        if any(spelling.encode() in data for spelling in spellings):
            found.append(name)
    return found


def stays_hidden(folder: Any, output: Iterable[str]) -> None:
    """Neither in what was printed or logged, nor in a file that others may read, nor at the head."""
    for text in output:
        assert is_in(text.encode()) == []
    with urllib.request.urlopen(
        f"http://127.0.0.1:{folder.head_port}/global_config_dict_yaml", timeout=60
    ) as answer:
        assert is_in(json.loads(answer.read()).encode()) == []
    holders = {path for path in folder.parts.parent.rglob("*") if path.is_file() and is_in(path.read_bytes())}
    assert holders == {folder.parts / "teller.json"}
    assert stat.S_IMODE((folder.parts / "teller.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.parts.stat().st_mode) == 0o700


def is_gone(folder: Any) -> None:
    """The project has ended: of what it held nothing lies on the disk."""
    paths = ProjectPaths.of(folder.project, folder.path)
    assert paths.folder.is_dir()
    assert [path for path in (paths.state, paths.parts, paths.secret) if path.exists()] == []
    assert [path for path in paths.folder.rglob("*") if path.is_file() and is_in(path.read_bytes())] == []


def processes_hide_them(pids: Iterable[int]) -> None:
    for pid in pids:
        for file in ("cmdline", "environ"):
            assert is_in(Path(f"/proc/{pid}/{file}").read_bytes()) == [], (pid, file)
