"""Why does this key have this value? Its writers, masked, and those of the values that it refers to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gymctl.config.model import Config, Write
from gymctl.config.names import close, did_you_mean
from gymctl.config.tree.masking import MASK, is_reference, is_secret, mask, secrets_of
from gymctl.config.tree.origins import dotted, leaves
from gymctl.errors import UsageError

_REFERENCE = re.compile(r"\$\{([^${}:.][^${}:]*)\}")


@dataclass(frozen=True)
class Explanation:
    """One leaf: its value and who wrote it, the winner last; secrets are masked."""

    key: str
    value: Any
    writers: tuple[Write, ...]
    refers_to: tuple[str, ...]
    is_expanded: bool = False
    """The winner is a `${reference}` that no longer counts: when a later file wrote into its block, it was
    replaced by what it stood for at that time."""

    def to_json(self) -> dict[str, Any]:
        writers = [
            {
                "source": write.origin.source,
                "line": write.origin.line,
                "column": write.origin.column,
                "kind": write.kind,
                "key": write.key,
                "said": write.said,
            }
            for write in self.writers
        ]
        return {
            "key": self.key,
            "value": self.value,
            "writers": writers,
            "refers_to": list(self.refers_to),
            "is_expanded": self.is_expanded,
        }


def explain(config: Config, key: str) -> list[Explanation]:
    """The leaf `key`, or every leaf below it; then the leaves that these refer to. Unknown: UsageError."""
    wanted = [leaf for leaf in config.writers if _is_below(leaf, key)]
    if not wanted:
        raise _unknown(config, key)
    secrets = secrets_said(config)
    values = {dotted(path): value for path, value in leaves(mask(config.document, secrets))}
    clear = {dotted(path): value for path, value in leaves(config.document)}
    told: dict[str, Explanation] = {}
    for leaf in wanted:  # grows while it is walked
        if leaf in told:
            continue
        writes = config.writers[leaf]
        refers_to = tuple(dict.fromkeys(_references(config, leaf, writes[-1])))
        shown = tuple(masked(write, secrets) for write in writes)
        follows = [clear[other] for other in refers_to]
        is_expanded = writes[-1].key != leaf and bool(follows) and follows != [clear[leaf]]
        told[leaf] = Explanation(leaf, values.get(leaf, MASK), shown, refers_to, is_expanded)
        wanted.extend(refers_to)
    return list(told.values())


def _is_below(leaf: str, key: str) -> bool:
    return leaf == key or leaf.startswith((f"{key}.", f"{key}["))


def _references(config: Config, leaf: str, winner: Write) -> Iterator[str]:
    """What a winning `${a.b}` leads to; for `judge: ${base}`, of `judge.n` that is `base.n`."""
    if winner.kind != "value" or not isinstance(winner.said, str):
        return
    rest = leaf[len(winner.key) :] if _is_below(leaf, winner.key) else ""
    for target in _REFERENCE.findall(winner.said):
        yield from (other for other in config.writers if _is_below(other, target + rest))


def secrets_said(config: Config) -> frozenset[str]:
    """Clear text that may not be printed, also what a later writer replaced: it was a secret, too."""
    said = [
        secrets_of({write.key.rpartition(".")[2]: write.said})
        for leaf in config.writers
        if is_secret(leaf)
        for write in config.writers[leaf]
        if write.kind == "value"
    ]
    return config.secrets.union(*said)


def masked(write: Write, secrets: frozenset[str]) -> Write:
    """`write` as it may be printed."""
    if write.kind not in ("value", "default"):
        return write
    if is_reference(write.said):
        return write  # a name, no secret, and what a reader is here for
    said: Any = write.said
    steps = re.split(r"\.|(?=\[)", write.key.replace(".[", "["))
    for step in reversed(steps):
        said = [said] if step.startswith("[") else {step: said}
    said = mask(said, secrets)
    for step in steps:
        if said == MASK:
            break  # an item of a list of secrets is hidden whole
        said = said[0] if step.startswith("[") else said[step]
    return Write(write.origin, said, write.key, write.kind)


def _unknown(config: Config, key: str) -> UsageError:
    known: set[str] = set()
    for leaf in config.writers:
        steps = re.split(r"\.|(?=\[)", leaf)
        for length in range(1, len(steps) + 1):
            known.add(".".join(steps[:length]).replace(".[", "["))
    by_last: dict[str, list[str]] = {}
    for name in sorted(known, key=len):
        by_last.setdefault(_last(name), []).append(name)
    alike = [name for last in close(_last(key), by_last) for name in by_last[last]]
    near = (by_last.get(key) or close(key, known) or alike)[:3]
    return UsageError(
        f"`{key}` is not in the configuration",
        where=key,
        hint=did_you_mean(near),
    )


def _last(key: str) -> str:
    return key.rpartition(".")[2]
