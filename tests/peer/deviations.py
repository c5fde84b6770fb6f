"""Recorded rollouts that today's servers judge otherwise, and why."""

from __future__ import annotations

from collections.abc import Mapping

RECORDED_WITH: Mapping[str, tuple[str, ...]] = {
    "lc_niah": ("++lc_niah.resources_servers.lc_niah.overlap_metric_rule=lcs",),
}
"""Settings that rollouts were recorded with, where the package's config has others now."""

_OTHER_TASKS = "the rollouts are of tasks whose ground truth the package does not hold"

REASONS: Mapping[str, str] = {
    "math_with_code": "row 4 was recorded by an older verifier, which cut `\\boxed{\\sqrt{2}}` short",
    "math_with_judge": "row 1 (a large power) meets the library's time limit; a judge would be asked then",
    "mcqa": "row 2 was recorded by an older verifier, which did not accept `\\boxed{C: text}`",
    "blackjack": "cards are dealt anew, without a seed",
    "grl_tetris": "pieces after the first are drawn without a seed",
    "math_advanced_calculations": _OTHER_TASKS,
    "openair_congestion": "a record holds one of its episode's two steps",
    "structured_outputs": _OTHER_TASKS,
    "workplace_assistant": _OTHER_TASKS,
}

NO_SERVERS: Mapping[str, str] = {
    "gymnasium": "the base class of others, no server of its own",
    "sec_local_index": "a library of others, no server of its own",
}
"""Folders among the servers that are not tried."""
