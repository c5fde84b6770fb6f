"""Whether a server runs tasks on Ray, told from its text: what its class declares, or its code imports.

NeMo Gym's rule: `ray_enabled = True` or `False` on the class or a base; a class that says nothing gets Ray.
On gymctl's SDK the attribute is the same, and a class that says nothing gets none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from gymctl.config.folder_text import files_of, text_of

MARK = "ray_enabled"
_IMPORTS = re.compile(r"^\s*(?:from|import)\s+ray\b", re.MULTILINE)


def ray_enabled_of(lineage: Iterable[ast.AST]) -> bool | None:
    """lineage: a class and its bases, the nearest first. None where no one says it in a plain word."""
    for node in lineage:
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool() as value)):
                    if name == MARK:
                        return value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=bool() as value)):
                    if name == MARK:
                        return value
                case _:
                    pass
    return None


def imports_ray(folder: Path) -> bool:
    """Whether any Python file of a server folder does; its tests are not asked."""
    return any(
        _IMPORTS.search(text_of(file))
        for file in files_of(folder, (".py",))
        if "tests" not in file.relative_to(folder).parts
    )
