"""The protocol of single_agent_turn behind flat rows: a row or an episode in, a flat record out (7.7)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.episodes import EpisodeFailure, EpisodeId, EpisodeRequest, Task, TaskId
from gymctl.contract.responses import FlatRow
from gymctl.contract.rollout import ATTEMPT_INDEX, FAILURE_CLASS, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX
from gymctl.servers import Episode, Json, SingleTurnConfig, SingleTurnServer, json_object, validated

TASK_NAMES = ("task_id", "problem_id", "instance_id")
NOT_TASK_DATA = frozenset({"responses_create_params", "agent_ref", "task_source", "skills_ref"})


class SingleAgentTurnLegacy(SingleTurnServer):
    config: SingleTurnConfig
    takes = FlatRow

    async def run(self, request: Request) -> Response:
        body = await json_object(request)
        if "episode_id" in body and "task" in body:
            asked = validated(EpisodeRequest, body)
            self.check(asked.task)
            return await self._flat(Episode(asked.episode_id, asked.task))
        task = Task(
            task_id=TaskId(taskset=self._taskset(body), task_id=_task_name(body)),
            task_input={
                "responses_create_params": body.get("responses_create_params"),
                "task_data": _task_data(body),
            },
        )
        self._require_own_agent(body)
        self.check(task, ())
        return await self._flat(Episode(_episode_id(body), task))

    async def _flat(self, episode: Episode) -> Response:
        answer = await self.answer(episode)
        agent = {"agent_ref": {"name": self.config.agent_server.name}}
        if answer.failure is not None:
            failed = {**_failed(answer.failure), **agent, **_partial(answer.failure)}
            return Json(failed, headers=episode.headers)
        return Json({**_scored(answer.result or {}), **agent})

    def _taskset(self, row: dict[str, Any]) -> str:
        resources, agent = self.config.resources_server.name, self.config.agent_server.name
        source = row.get("task_source")
        if source is None:
            return resources
        if source not in (resources, agent, self.config.name):
            known = f"{resources!r}, {agent!r} or {self.config.name!r}"
            raise ValueError(f"Row task_source {source!r} does not match {known}")
        return source

    def _require_own_agent(self, row: dict[str, Any]) -> None:
        reference, own = row.get("agent_ref"), self.config.agent_server.name
        name = reference.get("name") if isinstance(reference, dict) else reference
        if name is not None and name != own:
            raise ValueError(f"Row agent_ref {name!r} does not match configured agent server {own!r}")


def _episode_id(row: dict[str, Any]) -> EpisodeId:
    attempt = row.get(ATTEMPT_INDEX)
    if attempt is None:
        attempt = 0
    if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 0:
        raise ValueError(f"Row {ATTEMPT_INDEX} must be a non-negative integer, got {attempt!r}")
    rollout = row.get(ROLLOUT_ID)
    if rollout is None:
        rollout = f"{_index(row, TASK_INDEX)}-{_index(row, ROLLOUT_INDEX)}"
    return EpisodeId(rollout_id=rollout, attempt=attempt)


def _index(row: dict[str, Any], key: str) -> Any:
    if row.get(key) is None:
        raise ValueError(f"Row needs {ROLLOUT_ID}, or {TASK_INDEX} and {ROLLOUT_INDEX}")
    return row[key]


def _task_name(row: dict[str, Any]) -> str:
    for key in (*TASK_NAMES, TASK_INDEX):
        if row.get(key) not in (None, ""):
            return str(row[key])
    raise ValueError(f"Row has no task id: none of {', '.join(TASK_NAMES)}, {TASK_INDEX}")


def _task_data(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in row.items() if key not in NOT_TASK_DATA and not key.startswith("_ng_")
    }


def _scored(result: dict[str, Any]) -> dict[str, Any]:
    if result.get("ng_agent_observations") is None:
        return {key: value for key, value in result.items() if key != "ng_agent_observations"}
    return result


def _failed(failure: EpisodeFailure) -> dict[str, Any]:
    flat = {
        FAILURE_CLASS: "environment_server_failed",
        "_ng_failure_terminal": failure.terminal,
        "_ng_failure_message": failure.failure_reason,
        "_ng_failure_stage": failure.stage,
    }
    return flat if failure.failure_kind is None else {**flat, "failure_kind": failure.failure_kind}


def _partial(failure: EpisodeFailure) -> dict[str, Any]:
    response = failure.partial_response
    return {} if response is None else {"_ng_failure_partial_response": response}


app = SingleAgentTurnLegacy.app()
