"""A recorded rollout, judged again by a NeMo Gym resources server that is up.

What the server was told when the rollout was made is told again, in one session: `/seed_session`, the tool
calls, `/verify`; of a step-style server `/reset`, and `/step` for every turn of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import requests

from peer.recorded import Json, Recorded, turns

SECONDS = 120.0
TOLERANCE = 1e-9


class NotJudged(Exception):
    """The server gave no reward; the text says why."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One recorded rollout and what the server says of it now."""

    recorded: Recorded
    reward: float | None
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        return self.reward is not None and abs(self.reward - self.recorded.reward) <= TOLERANCE


def judge_all(url: str, rollouts: Sequence[Recorded]) -> list[Judged]:
    """All of them, one after the other, each in a session of its own."""
    steps = plays_steps(url)
    return [_judged(url, rollout, steps) for rollout in rollouts]


def plays_steps(url: str) -> bool:
    """Whether the server scores steps of an episode; there is no verifier then."""
    return "/step" in requests.get(f"{url}/openapi.json", timeout=SECONDS).json().get("paths", {})


def _judged(url: str, rollout: Recorded, steps: bool) -> Judged:
    with requests.Session() as session:
        try:
            reward = _played(session, url, rollout) if steps else _verified(session, url, rollout)
        except (NotJudged, requests.RequestException) as error:
            what = "" if rollout.has_task_row else "its task row is not in the package; "
            return Judged(rollout, None, f"{what}{error}"[:300])
    return Judged(rollout, reward)


def _verified(session: requests.Session, url: str, rollout: Recorded) -> float:
    row = {key: value for key, value in rollout.request.items() if key != "response"}
    _posted(session, f"{url}/seed_session", row)
    for item in rollout.output:
        if item.get("type") == "function_call":
            # An answer other than 2xx was the tool's answer then, too.
            session.post(f"{url}/{item['name']}", data=_arguments(item), headers=_JSON, timeout=SECONDS)
    return float(_posted(session, f"{url}/verify", rollout.request)["reward"])


def _played(session: requests.Session, url: str, rollout: Recorded) -> float:
    row = {**rollout.task, "responses_create_params": rollout.task["responses_create_params"]}
    _posted(session, f"{url}/reset", row)
    reward = 0.0
    for turn in turns(rollout.output):
        response = {**rollout.request["response"], "output": turn.items}
        step = _posted(session, f"{url}/step", {**row, "response": response})
        reward += step.get("reward") or 0.0
        if step.get("terminated") or step.get("truncated"):
            break
    return reward


_JSON = {"Content-Type": "application/json"}


def _arguments(call: Json) -> bytes:
    return (call.get("arguments") or "{}").encode()


def _posted(session: requests.Session, url: str, body: Json) -> Any:
    answer = session.post(url, json=body, timeout=SECONDS)
    if answer.status_code != 200:
        raise NotJudged(f"{url.rpartition('/')[2]}: HTTP {answer.status_code} {_said(answer)}")
    return answer.json()


def _said(answer: requests.Response) -> str:
    """What FastAPI found wrong with a body, without the body; else the beginning of the answer."""
    if answer.status_code != 422:
        return answer.text[:200]
    wrong = answer.json().get("detail") or []
    return ", ".join(f"{one['loc'][-1]}: {one['msg']}" for one in wrong[:2])
