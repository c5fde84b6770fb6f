"""What must not be printed or written in this folder, as far as that is known without a configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path


def secrets() -> Collection[str]:
    """What env.yaml, the environment, the command line and the projects that are up hold."""
    from gymctl.config.reading.files import read
    from gymctl.config.reading.roots import ENV_FILE
    from gymctl.config.tree.masking import secrets_of
    from gymctl.errors import ConfigError
    from gymctl.paths import ProjectPaths
    from gymctl.runtime import at_rest

    found = {*secrets_of(dict(os.environ)), *typed(sys.argv[1:])}
    if Path(ENV_FILE).is_file():
        with suppress(ConfigError):  # it is not what is asked for
            found |= secrets_of(read(Path(ENV_FILE), ENV_FILE).values)
    for folder in Path(".gymctl").glob("*/parts"):
        found |= set(at_rest.secrets_of(ProjectPaths(folder.parent)))
    return found


def typed(words: Sequence[str]) -> Iterable[str]:
    """The values of `--model-api-key` and of overrides whose key says that they are secret."""
    from gymctl.config.tree.masking import secrets_of

    for number, word in enumerate(words):
        key, sign, value = word.lstrip("+~-").partition("=")
        if word == "--model-api-key":
            key, sign, value = word, "=", "".join(words[number + 1 : number + 2])
        if sign:
            yield from secrets_of({key.rpartition(".")[2]: value.strip("'\"")})
