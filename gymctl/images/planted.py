"""What must not get into an image: values that a configuration calls secret, arguments named like one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

from gymctl.config.tree import masking
from gymctl.images.context import Context
from gymctl.images.plan import ImagePlan

SHORTEST = 8
"""Bytes. A shorter value stands in files that have nothing to do with it."""
_ARGUMENT = re.compile(r"^[ \t]*(?:ARG|ENV)[ \t]+([A-Za-z_]\w*)", re.IGNORECASE | re.MULTILINE)


def places(context: Context, secrets: Collection[str]) -> list[str]:
    """The files of a context that hold one of these values, whatever else is in them. Reads them all."""
    values = [one.encode("utf-8", "surrogateescape") for one in secrets]
    values = [one for one in values if len(one) >= SHORTEST]
    if not values:
        return []
    found = re.compile(b"|".join(map(re.escape, values)))
    return [place for place, file in context.files.items() if found.search(file.read_bytes())]


def tell(
    plans: Sequence[ImagePlan], built: Sequence[str], secrets: Collection[str], note: Callable[[str], None]
) -> None:
    """The doubts about those of `plans` whose tags were just built; the others were told of then."""
    by_tag = {plan.tag: plan for plan in plans}
    for warning in warnings([by_tag[tag] for tag in built], secrets):
        note(f"warning: {warning}")


def warnings(plans: Sequence[ImagePlan], secrets: Collection[str]) -> Iterator[str]:
    """One sentence for each doubt about images that have been built."""
    for plan in plans:
        for place in places(plan.context, secrets):
            yield (
                f"the image of {plan.source} holds a secret of the configuration ({place}): whoever gets the "
                "image can read it"
            )
        names = arguments(plan)
        if names:
            yield (
                f"the Dockerfile of {plan.source} has {', '.join(names)}: what an ARG or ENV is set to stays "
                "in the image's history; a secret belongs into RUN --mount=type=secret"
            )


def arguments(plan: ImagePlan) -> list[str]:
    """ARG and ENV names of a folder's own Dockerfile that sound like a secret."""
    if plan.dockerfile.variables is not None:
        return []
    names = dict.fromkeys(_ARGUMENT.findall(plan.dockerfile.source))
    return [name for name in names if masking.is_secret(name) and not masking.tells_nothing(name, "")]
