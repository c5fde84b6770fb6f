"""`rollout_collection_driver: module:function` (CONTRACT 9.1): a function of the user's makes the rollouts.

It is awaited with the settings of the evaluation (attributes named as in CONTRACT 9.2; `input_jsonl_fpath` is
the file of rows) and the whole configuration as the running head serves it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from gymctl.cli.interrupts import Interrupts
from gymctl.cli.serving import Serving
from gymctl.config.checks.evaluation import Written
from gymctl.contract.evaluation import EvaluationSettings
from gymctl.errors import ConfigError
from gymctl.rollouts.head import document
from gymctl.transport import Transport

KEY = "rollout_collection_driver"
Driver = Callable[[EvaluationSettings, Mapping[str, Any]], Awaitable[object]]


def find_driver(written: Written, *, is_serving: bool) -> Driver | None:
    """The function that is named, None when none is. Raises ConfigError: bad form, no module, no function."""
    name, where = written.settings.rollout_collection_driver, written.where(KEY)
    if name is None:
        return None
    if not is_serving:
        raise ConfigError(f"`{KEY}` and --no-serve do not go together", where=where)
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ConfigError(f"`{KEY}` must look like `package.module:function`, got `{name}`", where=where)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # the module is there, and what it imports is not
        raise ConfigError(
            f"there is no module `{module_name}`",
            where=where,
            hint="it is looked for in this folder and among the packages installed beside gymctl",
        ) from None
    function = getattr(module, function_name, None)
    if not inspect.iscoroutinefunction(function):
        what = "is no `async def`" if callable(function) else "is not there"
        raise ConfigError(f"`{function_name}` of `{module_name}` {what}", where=where)
    return function


async def drive(
    driver: Driver,
    settings: EvaluationSettings,
    serving: Serving,
    transport: Transport,
    interrupts: Interrupts,
) -> None:
    """Serve, and let the driver make the rollouts and all of their files."""
    async with serving.served(None, interrupts) as served:
        assert served.stack is not None
        await driver(settings, await document(transport, served.stack.head_url))
    serving.console.say(f"{settings.rollout_collection_driver} has returned")
