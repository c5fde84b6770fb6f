"""All mistakes of a configuration at once: checks report here, and a stage ends with everything it found.

What a stage finds is raised together, because a mistake corrected costs a user one more run. A later stage is
not entered with a broken result of an earlier one: a file that cannot be read makes every reference wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gymctl.errors import ConfigError, ConfigErrors


class Problems:
    """Errors and warnings of one load, in the order in which they were found."""

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[str] = []
        self._open: set[tuple[str | int, ...]] = set()
        self._told: set[tuple[str | int, ...]] = set()

    def add(self, error: ConfigError, *path: str | int) -> None:
        """Report `error`, which is about the value at `path`.

        One value is told once: what further checks say about it is left out, and so is what they say about
        a value that nobody gave, which has been reported as such.
        """
        is_open = any(path[: len(open_path)] == open_path for open_path in self._open)
        if is_open or path in self._told:
            return
        if path:
            self._told.add(path)
        self.errors.append(error)

    def extend(self, errors: Iterable[ConfigError]) -> None:
        for error in errors:
            self.add(error)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def leave_open(self, paths: Iterable[tuple[str | int, ...]]) -> None:
        """Values at or below `paths` are unknown; errors about them are consequences."""
        self._open.update(paths)

    @contextmanager
    def collected(self, *path: str | int) -> Iterator[None]:
        """Report the ConfigError that the block raises, and go on after it."""
        try:
            yield
        except ConfigError as error:
            self.add(error, *path)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the ConfigError that the block raises, which ends the load: nothing can be said after it."""
        try:
            yield
        except ConfigError as error:
            self.errors.append(error)
            raise

    def stop(self) -> None:
        """Raise what was found so far: the error itself when it is the only one, else ConfigErrors."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ConfigErrors(self.errors)
