"""What an agent sees of an activation while observability is on: calls, tools, turns (CONTRACT 15.2)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gymctl.contract.captures import CALL_ID_HEADER
from gymctl.contract.observations import as_items
from gymctl.contract.responses import JsonObject, function_calls
from gymctl.contract.rollout import rollout_name, task_name
from gymctl.servers.stack.client import ServerRef
from gymctl.transport import Answer

ROOT = "root"


class Activation:
    """One invocation of the agent; `Turn.observed` is None when nobody wants to know."""

    def __init__(self, number: int = 1) -> None:
        self.id = ROOT if number == 1 else f"activation-{number}"
        self._began = time.perf_counter()
        self._calls: list[JsonObject] = []
        self._turns: list[JsonObject] = []
        self._tools: list[JsonObject] = []
        self._open: list[JsonObject] = []
        """Tool calls of the model that nobody has run yet."""
        self._gaps: list[JsonObject] = []
        self._known = 0
        """Items of the conversation that earlier turns hold."""
        self._steps = 0
        self._conversation: list[JsonObject] = []
        self._seconds: float | None = None
        self._status, self._error = "incomplete", None

    def asked(
        self,
        model: ServerRef,
        params: Mapping[str, Any],
        started_at: float,
        answer: Answer,
        response: JsonObject,
    ) -> None:
        """The model answered."""
        reference = {
            "model_call_id": answer.header(CALL_ID_HEADER),
            "model_ref": {"type": model.type, "name": model.name},
            "response_id": response.get("id") or None,
        }
        is_named = reference["model_call_id"] or reference["response_id"]
        if not is_named:
            self._gaps.append({"code": "agent_observation_join_failed", "invocation_id": self.id})
        calls = [reference] if is_named else []
        self._calls += calls
        self._turn(params, started_at, response["output"], calls)
        found = function_calls(response)
        self._open = list(found)
        self._steps += len(found)

    def _turn(
        self, params: Mapping[str, Any], started_at: float, output: list[JsonObject], calls: list[JsonObject]
    ) -> None:
        given = params["input"]
        items = as_items(given)
        self._turns.append(
            {
                "invocation_id": self.id,
                "turn_no": len(self._turns) + 1,
                "timestamp": started_at,
                "question": items[self._known :] or items,
                "answer": [item for item in output if item.get("type") != "reasoning"],
                "reasoning_content": [item for item in output if item.get("type") == "reasoning"] or None,
                "step_count": self._steps,
                "model_calls": calls,
            }
        )
        self._conversation = [*items, *output]
        self._known = len(self._conversation)

    def used(self, name: str, arguments: str, started_at: float, *, is_failed: bool, output: str) -> None:
        """A tool was called, which the model had asked for."""
        call = next(
            (each for each in self._open if (each["name"], each.get("arguments") or "") == (name, arguments)),
            None,
        )
        if call is None:
            return
        self._open.remove(call)
        now = time.time()
        self._tools.append(
            {
                "kind": "tool_call",
                "invocation_id": self.id,
                "tool_call_id": call["call_id"],
                "tool_name": name,
                "started_at": started_at,
                "completed_at": max(now, started_at),
                "duration_ms": max(now - started_at, 0.0) * 1000,
                "timing_source": "harness",
                "status": "failed" if is_failed else "completed",
                "output": output,
            }
        )

    def ended(self, response: JsonObject | None, error: BaseException | None = None) -> None:
        """With the turn's Response, or without one."""
        self._seconds = time.perf_counter() - self._began
        if response is None:
            self._status, self._error = "failed", None if error is None else type(error).__name__
        else:
            self._status = "incomplete" if response.get("status") == "incomplete" else "completed"

    @property
    def invocation(self) -> JsonObject:
        return {
            "kind": "agent_invocation",
            "invocation_id": self.id,
            "status": self._status,
            "duration_ms": None if self._seconds is None else self._seconds * 1000,
            "error_type": self._error,
            "model_calls": self._calls,
            "conversation": self._conversation,
        }

    def records(self) -> list[JsonObject]:
        """As records of `ng_agent_observations`."""
        tools = [{key: value for key, value in tool.items() if key != "output"} for tool in self._tools]
        return [self.invocation, *tools]

    @property
    def gaps(self) -> list[JsonObject]:
        return self._gaps

    def trajectory(
        self, row: Mapping[str, Any], rollout: str | None, result: Mapping[str, Any]
    ) -> JsonObject:
        """As `ng_trajectory` of a flat row, whose verdict may say whether the task is resolved."""
        identity = {"task_id": task_name(row), "rollout_id": rollout or rollout_name(row)}
        turns = [{**turn, **identity} for turn in self._turns]
        gaps = list(self._gaps)
        if turns and isinstance(result.get("resolved"), bool):
            turns[-1]["resolved"] = result["resolved"]
        else:
            gaps.append({"code": "resolution_unavailable", "invocation_id": self.id})
        return {
            "schema_version": "1.0",
            **identity,
            "invocations": [self.invocation],
            "turns": turns,
            "model_calls": [],
            "tool_calls": self._tools,
            "gaps": gaps,
        }
