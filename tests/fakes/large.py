"""A project whose configuration is larger than an environment variable may be (DESIGN D2). Either runtime."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from typing import Any

from gymctl.contract.part import ServerPart

MIB = 1024**2
VARIABLE_LIMIT = 128 * 1024
"""Linux takes no longer environment variable."""
TELLER = """\
import hashlib
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from gymctl.servers import ResourcesConfig, ResourcesServer, VerifyRequest, VerifyResponse


class Config(ResourcesConfig):
    table: dict[str, Any]


class Teller(ResourcesServer):
    config: Config

    def routes(self, app):
        super().routes(app)
        self.get(app, "/digest", self.digest)

    async def digest(self, request: Request) -> JSONResponse:
        text = json.dumps(self.config.table, sort_keys=True)
        return JSONResponse(hashlib.sha256(text.encode()).hexdigest())

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=1.0)


app = Teller.app()
"""


def table(size: int) -> dict[str, Any]:
    """About `size` bytes of nested values, with numbers and text that JSON has to carry exactly."""
    row = {"weight": 0.1, "count": 2**63 + 1, "words": ["äöü", "$x", 'say "x"'], "pad": "p" * 900}
    return {f"row{number}": {**row, "id": number} for number in range(size // 1000)}


def whole_blocks_arrive(folder: Any) -> None:
    """Two servers, one with a block of 200 KiB and one of 2.5 MiB: both start and see every value of it."""
    tables = {"middle": table(VARIABLE_LIMIT + 70_000), "large": table(5 * MIB // 2)}
    for name, content in tables.items():
        folder.server(name, TELLER, table=content)
    up = folder.up("-d")
    assert up.returncode == 0, up.stderr
    for name, content in tables.items():
        part = ServerPart.model_validate_json((folder.parts / f"{name}.json").read_bytes())
        assert len(json.dumps(part.settings)) > VARIABLE_LIMIT
        port = folder.state["table"]["servers"][name]["address"]["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/digest", timeout=30) as answer:
            seen = json.loads(answer.read())
        assert seen == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    with urllib.request.urlopen(
        f"http://127.0.0.1:{folder.head_port}/global_config_dict_yaml", timeout=30
    ) as answer:
        assert len(answer.read()) > 2 * MIB
