"""The words in which a configuration speaks of failures (`failure_outcomes`)."""

from __future__ import annotations

from typing import Literal

FailureName = Literal["model", "environment", "verifier", "infrastructure", "bug", "oom", "timeout"]
"""The classes of a failure, and two kinds that may be looked at apart from their class."""
CountsAs = Literal["failed", "zero"]
