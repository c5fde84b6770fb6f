"""What stands in for a model that nobody chose, in commands that need none (CONTRACT 1.11).

What a configuration says itself always wins; and only what it refers to and lacks is stood in for: empty
`policy_…` values, and `dummy_model`, for which no folder is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gymctl.config.model import Origin
from gymctl.config.policy import POLICY, VALUES
from gymctl.config.shaping import directives
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.origins import MISSING, OriginTree, leaves, uniform

MODELS = "responses_api_models"
DUMMY = "dummy_model"
_ORIGIN = Origin("no model was chosen")


def layer(layers: Sequence[Layer]) -> Layer | None:
    """The lowest layer: what a choice of model would bring and these layers lack. None when nothing is."""
    texts = [value for one in layers for _, value in leaves(one.values) if isinstance(value, str)]
    values: dict[str, Any] = {
        key: ""
        for key in VALUES
        if all(one.values.get(key, MISSING) == MISSING for one in layers)
        and any("${" in text and _names(key, text) for text in texts)
    }
    blocks = [one.values[POLICY] for one in layers if POLICY in one.values]
    if _is_partial(blocks) or (not blocks and any(_names(POLICY, text) for text in texts)):
        values[POLICY] = {MODELS: {DUMMY: {"entrypoint": "app.py"}}}
    if not values:
        return None
    return Layer(str(_ORIGIN), values, {key: uniform(value, _ORIGIN) for key, value in values.items()})


def told(stand_in: Layer) -> str:
    """The one line for the user."""
    names = ", ".join(f"`{key}`" for key in stand_in.values)
    return f"no model was chosen, so these are placeholders: {names}; --model-type NAME chooses one"


def fold(document: dict[str, Any], tree: dict[Any, OriginTree]) -> None:
    """Where a real implementation shares the instance, the dummy's values go under it and the dummy goes."""
    for name, block in document.items():
        inner = block.get(MODELS) if isinstance(block, dict) else None
        if not isinstance(inner, dict) or DUMMY not in inner or len(inner) < 2:
            continue
        real = next(key for key in inner if key != DUMMY)
        branch: Any = _step(_step(tree, name), MODELS)
        dummy, dummy_tree = inner.pop(DUMMY), _step(branch, DUMMY)
        if not isinstance(dummy, dict) or not isinstance(inner[real], (dict, type(None))):
            continue
        inner[real] = _under(dummy, inner[real] or {})
        if isinstance(branch, dict):
            branch.pop(DUMMY, None)
            branch[real] = _under(dummy_tree, _step(branch, real))


def _names(key: str, text: str) -> bool:
    return key in text and re.search(rf"\b{key}\b", text) is not None


def _is_partial(blocks: Sequence[Any]) -> bool:
    """The files say something about the policy model, but none says what it is."""
    inner = [block.get(MODELS) for block in blocks if isinstance(block, dict)]
    found = [settings for one in inner if isinstance(one, dict) for settings in one.values()]
    is_whole = any(isinstance(one, str) or (isinstance(one, dict) and one.get("entrypoint")) for one in found)
    return bool(found) and not is_whole and not any(map(directives.are_in, blocks))


def _under(base: Any, top: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(top, dict):
        return top
    both = {key: _under(base[key], top[key]) for key in base if key in top}
    return {**base, **top, **both}


def _step(tree: Any, step: object) -> Any:
    return tree.get(step) if isinstance(tree, dict) else None
