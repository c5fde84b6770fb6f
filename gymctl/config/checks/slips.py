"""Settings called almost like a key that means something: whoever wrote `limitt: 3` expects three rows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from gymctl.config.checks.global_keys import NAMES
from gymctl.contract.evaluation import EvaluationSettings
from gymctl.contract.servers import KINDS

NEAR = 0.85
"""How alike two keys must be for the one to be a slip of the other."""


def near_settings(
    settings: Mapping[str, Any],
    servers: Collection[str],
    texts: Callable[[], Iterable[str]],
    place: Callable[[str], str],
) -> Iterator[str]:
    """A warning for each of `settings` that is almost a key and that none of `texts` refers to.

    A setting may have any name, so this can be no error. `place` says who wrote it.
    """
    known = {*NAMES, *EvaluationSettings.model_fields}
    for key, value in settings.items():
        is_block = isinstance(value, Mapping) and any(kind in value for kind in KINDS)
        if key in known or key in servers or is_block:
            continue
        near = difflib.get_close_matches(str(key), known, n=1, cutoff=NEAR)
        if near and not _is_referred_to(str(key), texts()):
            yield f"`{key}` means nothing to gymctl ({place(key)}); did you mean `{near[0]}`?"


def _is_referred_to(key: str, texts: Iterable[str]) -> bool:
    """Does some `${key}` or `${oc…:key}` in the files name the setting?"""
    pattern = re.compile(rf"\$\{{[^}}]*\b{re.escape(key)}\b")
    return any("${" in text and pattern.search(text) for text in texts)
