"""`--policy-at [HOST:]PORT`: somebody else starts the policy model, whatever the files say.

Its block has an address and no `entrypoint`: agents dial it, and nothing of ours starts it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gymctl.config.checks.instances import as_port
from gymctl.config.model import Origin, Write
from gymctl.config.policy import POLICY, TRAINED
from gymctl.config.tree.origins import OriginTree, Path, dotted, leaves, uniform
from gymctl.errors import UsageError

FLAG = "--policy-at"
_HOST = re.compile(r"[A-Za-z0-9.-]+")


def insert(
    document: dict[Any, Any], tree: dict[Any, OriginTree], policy_at: str
) -> Mapping[Path, Sequence[Write]]:
    """Put the block in the place of the policy model, and in its origins; returns who wrote what is new.
    UsageError: no such place."""
    host, port = _place(policy_at)
    origin = Origin(FLAG)
    document[POLICY] = {"responses_api_models": {TRAINED: {"host": host, "port": port}}}
    tree[POLICY] = uniform(document[POLICY], origin)
    return {path: [Write(origin, value, dotted(path))] for path, value in leaves(document[POLICY], (POLICY,))}


def _place(text: str) -> tuple[str, int]:
    host, _, port_text = text.rpartition(":")
    port, host = as_port(port_text), host or "127.0.0.1"
    if port is None or not _HOST.fullmatch(host):
        raise UsageError(f"`{text}` is no [HOST:]PORT", where=FLAG, hint="such as 5990, or 10.1.0.7:5990")
    return host, port
