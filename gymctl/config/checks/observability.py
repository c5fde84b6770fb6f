"""What is recorded of model calls: the keys of CONTRACT 15.1 and 15.3, and which of them go together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from gymctl.config.checks.global_keys import GlobalKeys, TokenIdCapture
from gymctl.config.model import TokenCapture
from gymctl.config.problems import Problems
from gymctl.config.tree.origins import Origins
from gymctl.errors import ConfigError

ENABLED = "observability_enabled"
CALLS = "model_call_capture_dir"
TOKENS = "token_id_capture"
_NOT_SUPPORTED = (
    ("sink", "records are files in `dir`"),
    ("lineage_store", "a call's parent is found in the files in `dir`"),
    ("external_staging", "records are files in `dir`"),
    ("delta_records", "every record holds its whole prompt"),
)


def call_capture(keys: GlobalKeys, origins: Origins, problems: Problems) -> str | None:
    """The folder of recorded model calls; None: none are recorded."""
    if keys.observability_enabled is not True:
        return None
    folder = keys.model_call_capture_dir
    if folder is None:
        where = origins.where(ENABLED)
        hint = f"an absolute folder, such as `{CALLS}: /data/calls`; each rollout gets a file there"
        problems.add(ConfigError(f"`{ENABLED}: true` needs `{CALLS}`", where=where, hint=hint), CALLS)
        return None
    return str(PurePosixPath(folder))


def token_capture(keys: GlobalKeys, origins: Origins, problems: Problems) -> TokenCapture | None:
    """The checked block; None when it is not enabled."""
    block = keys.token_id_capture
    if block is None or not block.enabled:
        if block is not None and block.external_staging:
            _add(problems, origins, "external_staging", "needs `enabled: true`")
        return None
    for key, reason in _contradictions(block):
        _add(problems, origins, key, reason)
    folder = block.dir or keys.model_call_capture_dir
    if folder is None:
        _add(problems, origins, "enabled", f"needs `dir`, an absolute folder, or `{CALLS}`")
        return None
    return TokenCapture(
        folder=str(PurePosixPath(folder)),
        all_agents=block.all_agents is True,
        rebuild_response=block.rebuild_response is not False,
        allow_unresolved_continuations=block.allow_unresolved_continuations is True,
        max_mask_fraction=block.max_mask_fraction,
        mask_fraction_min_samples=block.mask_fraction_min_samples or 50,
    )


def _contradictions(block: TokenIdCapture) -> Iterator[tuple[str, str]]:
    if block.external_staging and block.rebuild_response is not False:
        yield "external_staging", "needs `rebuild_response: false`"
    if block.sink and not block.lineage_store and not block.allow_unresolved_continuations:
        yield "sink", "needs a `lineage_store`, or `allow_unresolved_continuations: true`"
    for key, reason in _NOT_SUPPORTED:
        if getattr(block, key):
            yield key, f"is not supported by gymctl: {reason}"
    fraction = block.max_mask_fraction
    if fraction is not None and not 0 <= fraction <= 1:
        yield "max_mask_fraction", f"must be a share from 0 to 1, got `{fraction:g}`"


def _add(problems: Problems, origins: Origins, key: str, reason: str) -> None:
    where = origins.where(TOKENS, key) or origins.where(TOKENS)
    problems.add(ConfigError(f"`{TOKENS}.{key}` {reason}", where=where), TOKENS, key)
