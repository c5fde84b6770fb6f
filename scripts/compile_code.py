#!/usr/bin/env python3
"""Inside images: compiles Python files that have no byte code yet, to the same bytes every time.

    compile-code FOLDER...

What a compiler writes depends a little on what its process compiled before (which strings it still holds). So
each folder gets a process of its own, forked from one that has compiled nothing, and its files go in order of
their names. The byte code is unchecked: valid whatever the file times are. Files that do not compile are
passed over, as templates are.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import py_compile
import sys
import warnings
from collections.abc import Iterator


def not_compiled(top: str) -> Iterator[list[str]]:
    """The files of each folder."""
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name != "__pycache__"]
        paths = [f"{folder}/{name}" for name in sorted(files) if name.endswith(".py")]
        missing = [path for path in paths if not os.access(importlib.util.cache_from_source(path), os.F_OK)]
        if missing:
            yield missing


def compile_all(paths: list[str]) -> None:
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for path in paths:
        try:
            py_compile.compile(path, doraise=True, invalidation_mode=unchecked)
        except Exception:  # noqa: BLE001 - whatever file a package brings
            continue


def main(folders: list[str]) -> None:
    warnings.simplefilter("ignore")
    free = len(os.sched_getaffinity(0))
    for paths in (paths for folder in folders for paths in not_compiled(folder)):
        if free == 0:
            os.wait()
            free += 1
        if os.fork() == 0:
            try:
                compile_all(paths)
            finally:
                os._exit(0)
        free -= 1
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
