"""Reasoning tasks: procedural puzzles of the reasoning-gym package, scored by the package's own verifiers.

A row names a task by `family`, `seed` and `index`; the verifier makes it again, so it needs no file.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import re
import threading
from collections import OrderedDict
from typing import Any

from pydantic import Field

from gymctl.servers import ResourcesConfig, ResourcesServer, VerifyRequest, VerifyResponse

PACKAGE = "reasoning_gym"
"""Its import takes seconds: the server answers meanwhile, and the first verification waits for it."""

ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class ReasoningConfig(ResourcesConfig):
    cached_datasets: int = Field(default=64, ge=1)


class ReasoningTask(VerifyRequest):
    """`config` holds the family's difficulty settings, as `reasoning_gym.create_dataset` takes them."""

    family: str
    seed: int
    index: int = Field(ge=0)
    config: dict[str, Any] = Field(default_factory=dict)


class ReasoningVerdict(VerifyResponse):
    family: str
    extracted_answer: str | None


class Tasks:
    """Datasets by family, seed and difficulty; entries are made on demand, the datasets themselves kept."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._datasets: OrderedDict[str, Any] = OrderedDict()
        # Some families draw from a generator that is shared by the dataset: one thread at a time.
        self._lock = threading.Lock()

    def score(self, task: ReasoningTask, candidates: list[str]) -> tuple[float, str | None]:
        """The best score of the candidates, with the one that earned it. The first wins a tie."""
        with self._lock:
            dataset = self._dataset(task)
            entry = dataset[task.index]
            best, chosen = 0.0, candidates[0] if candidates else None
            for candidate in candidates:
                score = _score(dataset, candidate, entry)
                if score > best:
                    best, chosen = score, candidate
        return best, chosen

    def _dataset(self, task: ReasoningTask) -> Any:
        # Tables that give every row the settings of all families fill the foreign ones with null.
        config = {name: value for name, value in task.config.items() if value is not None}
        key = json.dumps([task.family, task.seed, config], sort_keys=True)
        dataset = self._datasets.get(key)
        if dataset is None or dataset.size <= task.index:
            package: Any = importlib.import_module(PACKAGE)
            # Larger than asked: making a dataset takes up to 30 ms, and rows come with growing indices.
            size = max(1024, 1 << task.index.bit_length())
            try:
                dataset = package.create_dataset(task.family, seed=task.seed, size=size, **config)
            except (ValueError, TypeError, AssertionError) as error:
                described = f"`{task.family}` with seed {task.seed} and config {config}"
                raise ValueError(f"no task of {PACKAGE}: {described}: {error}") from error
            self._datasets[key] = dataset
            if len(self._datasets) > self._maximum:
                self._datasets.popitem(last=False)
        self._datasets.move_to_end(key)
        return dataset


def _score(dataset: Any, candidate: str, entry: dict[str, Any]) -> float:
    """0..1. Some families raise on an answer that is not of the form they expect: that is a wrong answer."""
    try:
        return min(max(float(dataset.score_answer(answer=candidate, entry=entry)), 0.0), 1.0)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, SyntaxError):
        return 0.0


def candidates(text: str) -> list[str]:
    """What may be the answer in a model's text.

    The content of the last <answer> tag, if there is one, and nothing else. Without a tag: the whole text
    (stripped), then its last number, so that "The answer is 7." counts as 7.
    """
    tagged = _last_tagged(text)
    if tagged is not None:
        return [tagged.strip()]
    whole = text.strip()
    found = [whole] if whole else []
    numbers = NUMBER.findall(text)
    if numbers:
        number = numbers[-1].replace(",", "")
        if number != whole:
            found.append(number)
    return found


def _last_tagged(text: str) -> str | None:
    """Tag by tag: a pattern for the pair needs quadratic time for a model that repeats the opening one."""
    found: str | None = None
    begin: int | None = None
    for tag in ANSWER_TAG.finditer(text):
        if not tag[1]:
            begin = tag.end()
        elif begin is not None:
            found, begin = text[begin : tag.start()], None
    return found


class ReasoningTasks(ResourcesServer):
    """No tools: the model thinks and answers."""

    config: ReasoningConfig
    reverify_mode = "stateless"

    async def startup(self) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise ModuleNotFoundError(f"{PACKAGE} is not installed; see requirements-nodeps.txt")
        self._tasks = Tasks(self.config.cached_datasets)
        self._importing = asyncio.create_task(asyncio.to_thread(importlib.import_module, PACKAGE))

    async def shutdown(self) -> None:
        self._importing.cancel()

    async def verify(self, request: ReasoningTask) -> ReasoningVerdict:
        reward, answer = await asyncio.to_thread(self._tasks.score, request, candidates(request.answer))
        return ReasoningVerdict.of(request, reward=reward, extracted_answer=answer)


app = ReasoningTasks.app()
