"""The image that a prepare script runs in: NeMo Gym's family base, with git and packages where it needs them.

image = hash(family base's tag, Dockerfile with the packages, files of those that lie in the script's root)
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from gymctl.images.context import Context, checkout_files
from gymctl.images.nemo_gym import REPOSITORY
from gymctl.images.plan import Dockerfile, ImagePlan, inputs_hash
from gymctl.paths import bundled

EDITABLE = ("-e", "--editable")


def plan_prepare(
    family: ImagePlan, source: str, dependencies: Sequence[str], root: Path, *, needs_git: bool
) -> ImagePlan:
    """The family base itself for a script that needs nothing else. source: how messages name the script."""
    context = Context(dict(sorted(_files(dependencies, root))))
    needs_git = needs_git or any("git+" in text for text in (*dependencies, *_requirements(context)))
    if not dependencies and not needs_git:
        return family
    variables = {"dependencies": shlex.join(_arguments(dependencies, root)), "needs_git": needs_git}
    template = (bundled() / "templates" / "Dockerfile.nemo_gym_prepare").read_text("utf-8")
    dockerfile = Dockerfile(template, variables)
    digest = context.digest()
    return ImagePlan(
        repository=f"{REPOSITORY}-prepare",
        inputs=inputs_hash(family.tag, dockerfile, digest),
        dockerfile=dockerfile,
        context=context,
        context_digest=digest,
        parent=family.tag,
        kind="server",
        source=source,
    )


def _arguments(dependencies: Sequence[str], root: Path) -> Iterator[str]:
    """As they stand, but for what lies in the root: that is copied, and so cannot be installed editable."""
    for index, one in enumerate(dependencies):
        following = dependencies[index + 1] if index + 1 < len(dependencies) else ""
        if one in EDITABLE and (root / following).exists():
            continue
        yield f"./{_place(one)}" if _is_in(one, root) else one


def _files(dependencies: Sequence[str], root: Path) -> Iterator[tuple[str, Path]]:
    for one in dependencies:
        if not _is_in(one, root):
            continue
        if (root / one).is_dir():
            yield from checkout_files(root / one, _place(one))
        else:
            yield _place(one), root / one


def _requirements(context: Context) -> Iterator[str]:
    for place, file in context.files.items():
        if Path(place).suffix in (".txt", ".toml"):
            yield file.read_text("utf-8", "replace")


def _is_in(dependency: str, root: Path) -> bool:
    return not dependency.startswith("-") and (root / dependency).exists()


def _place(dependency: str) -> str:
    return Path(dependency).as_posix().lstrip("/").removeprefix("./")
