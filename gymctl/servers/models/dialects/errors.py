"""What cannot be said in the other dialect."""

from __future__ import annotations


class ConversionError(ValueError):
    """A request or an answer holds something that the other dialect has no word for.

    The servers' error border answers 500 with its text, as CONTRACT 13.4 and 13.5 ask.
    """
