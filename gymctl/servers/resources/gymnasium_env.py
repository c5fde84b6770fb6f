"""Serve an environment of the `gymnasium` package (any object with its `reset`, `step` and `close`).

    class Lake(EnvServer):
        actions: ClassVar[Mapping[str, Any]] = {"left": 0, "down": 1, "right": 2, "up": 3}

        def make(self, row: EnvRow) -> Env:
            import gymnasium
            return gymnasium.make("FrozenLake-v1", render_mode="ansi")

        def observe(self, env: Env, observation: Any) -> str:
            return env.render()

Everything here runs in threads, one call at a time for each environment, so a slow `step` keeps neither
other sessions nor the liveness routes waiting. Import `gymnasium` inside `make`: the server is ready before.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol, SupportsFloat, TypeVar

from pydantic import BaseModel, Field

from gymctl.contract.part import ServerPart
from gymctl.contract.stepping import Reset, Step
from gymctl.servers.resources.config import ResourcesConfig
from gymctl.servers.resources.gymnasium import GymnasiumServer, StepRequest
from gymctl.servers.resources.handlers import Signature
from gymctl.servers.resources.server import row_model
from gymctl.servers.resources.state import SessionState
from gymctl.servers.stack.base import ServerConfig

T = TypeVar("T")

ACTION = re.compile(r"<action>(.*?)</action>", re.IGNORECASE | re.DOTALL)


class Env(Protocol):
    """What is asked of an environment: the methods of `gymnasium.Env`."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]: ...
    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]: ...
    def close(self) -> None: ...


class EnvConfig(ResourcesConfig):
    """Block of a server that wraps an environment."""

    env_threads: int = Field(default=16, ge=1)
    """Environments that may be at work at the same moment."""
    invalid_action_reward: float = 0.0
    """For a turn that holds no action; the environment is not stepped."""


class EnvRow(BaseModel):
    """What a row says of its episode, as `Env.reset` takes it. Without a seed every episode differs."""

    seed: int | None = Field(default=None, ge=0)
    options: dict[str, Any] | None = None


class InvalidAction(Exception):
    """The model's turn holds no action; the text is what the model is told."""


class EnvState(SessionState):
    """The environment of one session. A call that was given up may still run: the next one waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._env: Any = None
        self._is_closed = False

    def enter(self, make: Callable[[], Any], use: Callable[[Any], T]) -> T:
        """Make the environment and use it; when the session was closed meanwhile, it is closed at once."""
        with self._guard:
            if self._is_closed:
                raise RuntimeError("the session was closed before its environment was made")
            self._env = make()
            return use(self._env)

    def use(self, work: Callable[[Any], T]) -> T:
        with self._guard:
            if self._env is None:
                raise RuntimeError("the session has no environment")
            return work(self._env)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._guard:
            self._is_closed = True
            if self._env is not None:
                self._env.close()
                self._env = None


class EnvServer(GymnasiumServer):
    """Write `make`, name the `actions`, and say in `observe` what the model sees."""

    needs: ClassVar[type[ServerConfig]] = EnvConfig
    supports_explicit_close: ClassVar[bool] = True
    actions: ClassVar[Mapping[str, Any]] = {}
    """What the model writes between `<action>` and `</action>`, and the action it stands for."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self._reset_model = row_model(Signature.of(type(self).make))
        self._env_threads: ThreadPoolExecutor | None = None

    def make(self, row: EnvRow) -> Any:
        """The environment of one episode. Annotate `row` with your own EnvRow to read more of the row."""
        raise NotImplementedError(f"{type(self).__name__} has no `make`")

    def observe(self, env: Any, observation: Any) -> str | None:
        """What the model is told; the end of an episode is not told to it, see `report`."""
        return str(observation)

    def action(self, turn: StepRequest, env: Any) -> Any:
        """The action of a turn: the last one that it names. Raise InvalidAction when there is none."""
        named = ACTION.findall(turn.answer)
        name = named[-1].strip().lower() if named else None
        for known, action in self.actions.items():
            if known.lower() == name:
                return action
        choices = " or ".join(f"<action>{known}</action>" for known in self.actions)
        raise InvalidAction(f"There is no action in your answer. Respond with {choices}.")

    def report(self, env: Any, info: dict[str, Any], *, is_over: bool) -> dict[str, Any]:
        """The step's `info`; that of the last step stays with the rollout."""
        return info

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        # Threads of our own: environments that are slow must not keep the rest of the server waiting.
        self._env_threads = ThreadPoolExecutor(self.config.env_threads, thread_name_prefix="env")
        try:
            async with super().running():
                yield
        finally:
            self._env_threads.shutdown(wait=False, cancel_futures=True)

    async def reset(self, row: EnvRow, state: EnvState) -> Reset:
        def begin(env: Any) -> Reset:
            observation, info = env.reset(seed=row.seed, options=row.options)
            told = self.observe(env, observation)
            return Reset(observation=told, info=plain(self.report(env, info, is_over=False)))

        return await self._in_thread(lambda: state.enter(lambda: self.make(row), begin))

    async def step(self, request: StepRequest, state: EnvState) -> Step:
        return await self._in_thread(lambda: state.use(lambda env: self._played(request, env)))

    def _played(self, turn: StepRequest, env: Any) -> Step:
        try:
            action = self.action(turn, env)
        except InvalidAction as refusal:
            reward = self.config.invalid_action_reward
            return Step(observation=str(refusal), reward=reward, info={"invalid_action": True})
        observation, reward, terminated, truncated, info = env.step(action)
        is_over = bool(terminated or truncated)
        return Step(
            observation=None if is_over else self.observe(env, observation),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info=plain(self.report(env, info, is_over=is_over)),
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._env_threads, work)


def plain(value: Any) -> Any:
    """JSON of what environments put into their `info`: arrays become lists, what has no JSON its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    to_list = getattr(value, "tolist", None)  # arrays and scalars of numpy and its kin
    return plain(to_list()) if callable(to_list) else str(value)
