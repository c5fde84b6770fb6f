"""Rows -> records: dataset, expansion, bounded collection, files. Knows neither Docker nor config.

A program that only wants rollouts needs three functions of `library`, which are to be had here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymctl.rollouts.library import collect_rollouts, iter_rollouts, run_from_config

__all__ = ["collect_rollouts", "iter_rollouts", "run_from_config"]


def __getattr__(name: str) -> Any:
    """On first use: what imports one module of this folder does not import them all."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gymctl.rollouts import library

    return getattr(library, name)
