"""One view of a rollout out of two: what its agent reports, and the model calls on record (CONTRACT 15.2).

The agent knows which turns there were and whose they are; the record knows what was asked and answered, and
how many tokens it took. A call belongs to the invocation that refers to it; nobody guesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from gymctl.contract.observations import (
    CallFacts,
    CallRef,
    Gap,
    Invocation,
    ModelCall,
    Observations,
    TokenStats,
    ToolCall,
    ToolOutput,
    Trajectory,
    Turn,
    as_items,
)
from gymctl.contract.rollout import MODEL_CALLS, OBSERVATIONS, TRAJECTORY, Row
from gymctl.rollouts.call_records import PAYLOADS

JOIN_FAILED = "agent_observation_join_failed"
_TOKENS = {
    "prompt_tokens": "tokens_in",
    "completion_tokens": "tokens_out",
    "reasoning_tokens": "tokens_reasoning",
    "total_tokens": "tokens_total",
    "cached_tokens": "cached_tokens",
}
_SUMS = {
    "prompt_tokens": "prompt_tokens",
    "cached_prompt_tokens": "cached_tokens",
    "completion_tokens": "completion_tokens",
    "reasoning_tokens": "reasoning_tokens",
}


def project(record: Row, task_id: str, rollout_id: str) -> Trajectory:
    """The trajectory of a record. What could not be seen is a gap in it; raises for what must not be."""
    gaps: list[Gap] = []
    own = _own(record.get(TRAJECTORY), task_id, rollout_id, gaps)
    seen = _seen(record.get(OBSERVATIONS), gaps)
    capture = record.get(MODEL_CALLS) or {}
    calls = [_model_call(call) for call in capture.get("calls") or ()]
    gaps += [_gap(gap) for gap in capture.get("gaps") or ()]
    known = {invocation.invocation_id for invocation in own.invocations} if own is not None else set()
    invocations = list(own.invocations) if own is not None else []
    invocations += [each for each in seen.invocations if each.invocation_id not in known]
    index = _Index(calls)
    invocations = [index.joined(each, gaps) for each in invocations] if calls else invocations
    if own is None:
        turns = _turns(task_id, rollout_id, invocations, index)
        if turns and isinstance(record.get("resolved"), bool):
            turns[-1].resolved = record["resolved"]
    else:
        turns = own.turns
    if own is not None:
        calls = [*calls, *(call for call in own.model_calls if call.model_call_id not in index.by_id)]
    for is_there, code in (
        (calls, "model_calls_unavailable"),
        (turns or own is not None, "turns_unavailable"),
        (any(each.conversation for each in invocations), "conversation_unavailable"),
    ):
        gaps += [] if is_there else [Gap(code=code)]
    return Trajectory(
        task_id=task_id,
        rollout_id=rollout_id,
        invocations=invocations,
        turns=sorted(turns, key=lambda turn: (turn.timestamp, turn.invocation_id, turn.turn_no)),
        model_calls=calls,
        tool_calls=_tools(own.tool_calls if own is not None else (), seen, invocations),
        gaps=list({(gap.code, gap.invocation_id, gap.detail): gap for gap in gaps}.values()),
    )


def perf(trajectory: Trajectory, milliseconds: float | None) -> dict[str, Any] | None:
    """`ng_perf`: turns, tools and tokens of the agents; None when no invocation was seen."""
    if not trajectory.invocations:
        return None
    index = _Index(trajectory.model_calls)
    owned: dict[int, ModelCall] = {}
    calls_of, turns_of = Counter[str](), Counter(turn.invocation_id for turn in trajectory.turns)
    for invocation in trajectory.invocations:
        for reference in invocation.model_calls:
            call = index.find(reference)
            if call is not None and id(call) not in owned:
                owned[id(call)] = call
                calls_of[invocation.invocation_id] += 1
    ids = [invocation.invocation_id for invocation in trajectory.invocations]
    turns = sum(turns_of[each] or calls_of[each] or 1 for each in ids)
    told: dict[str, Any] = {
        "num_turns": turns,
        "num_tool_calls": sum(tool.invocation_id in set(ids) for tool in trajectory.tool_calls),
        "token_observability_coverage": min(1.0, len(owned) / turns),
    }
    for key, field in _SUMS.items():
        values = [getattr(call.token_stats, field) for call in owned.values()]
        known = [value for value in values if value is not None]
        if known:
            told[key] = sum(known)
    if milliseconds is not None:
        told["total_latency_ms"] = milliseconds
    return told


def without_payloads(capture: dict[str, Any]) -> None:
    """The trajectory holds requests and responses; the calls need not hold them again."""
    for call in capture.get("calls") or ():
        for key in PAYLOADS:
            call.pop(key, None)


class _Index:
    """Recorded calls by both names that a reference may use."""

    def __init__(self, calls: Iterable[ModelCall]) -> None:
        self.by_id: dict[str | None, ModelCall] = {}
        self._by_response: dict[tuple[str, str], list[ModelCall]] = {}
        for call in calls:
            if call.model_call_id:
                self.by_id[call.model_call_id] = call
            facts = call.response_metadata
            if facts.model_ref is not None and facts.response_id:
                self._by_response.setdefault((facts.model_ref.name, facts.response_id), []).append(call)

    def find(self, reference: CallRef) -> ModelCall | None:
        """None also when a name fits several calls."""
        if reference.model_call_id:
            return self.by_id.get(reference.model_call_id)
        assert reference.model_ref is not None
        found = self._by_response.get((reference.model_ref.name, reference.response_id or ""), [])
        return found[0] if len(found) == 1 else None

    def joined(self, invocation: Invocation, gaps: list[Gap]) -> Invocation:
        """With references that name the recorded calls; one that fits none or several is a gap."""
        references: list[CallRef] = []
        for reference in invocation.model_calls:
            call = self.find(reference)
            if call is None:
                detail = reference.model_call_id or reference.response_id
                gaps.append(Gap(code=JOIN_FAILED, invocation_id=invocation.invocation_id, detail=detail))
            references.append(reference if call is None else _reference(call))
        return invocation.model_copy(update={"model_calls": references})


def _reference(call: ModelCall) -> CallRef:
    facts = call.response_metadata
    return CallRef(model_call_id=call.model_call_id, model_ref=facts.model_ref, response_id=facts.response_id)


def _own(raw: Any, task_id: str, rollout_id: str, gaps: list[Gap]) -> Trajectory | None:
    """What the agent put together by itself, under the collector's names."""
    if not isinstance(raw, dict):
        return None
    try:
        own = Trajectory.model_validate(raw)
    except ValidationError as error:
        gaps.append(Gap(code="producer_trajectory_invalid", detail=str(error.errors()[0]["loc"])))
        return None
    gaps += own.gaps
    names = {"task_id": task_id, "rollout_id": rollout_id}
    others = [key for key, name in names.items() if getattr(own, key) != name]
    if others:
        gaps.append(Gap(code="producer_trajectory_identity_mismatch", detail=",".join(others)))
        own.turns = [turn.model_copy(update=names) for turn in own.turns]
    return own


def _seen(raw: Any, gaps: list[Gap]) -> Observations:
    if raw is None:
        return Observations(source="none")
    try:
        seen = Observations.model_validate(raw)
    except ValidationError as error:
        gaps.append(Gap(code="agent_observations_invalid", detail=str(error.errors()[0]["loc"])))
        return Observations(source="none")
    gaps += seen.gaps
    return seen


def _gap(raw: Any) -> Gap:
    try:
        return Gap.model_validate(raw)
    except ValidationError:
        return Gap(code="model_call_capture_gap_invalid")


def _model_call(call: Mapping[str, Any]) -> ModelCall:
    def payload(key: str) -> Any:
        return call[key] if call.get(key) is not None else call.get(f"{key}_raw")

    return ModelCall(
        model_call_id=call.get("model_call_id"),
        started_at=call.get("started_at"),
        completed_at=call.get("completed_at"),
        duration_ms=call.get("latency_total_ms"),
        request=payload("request"),
        response=payload("response"),
        response_metadata=CallFacts.model_validate(
            {key: call[key] for key in CallFacts.model_fields if call.get(key) is not None}
        ),
        token_stats=TokenStats(**{key: call.get(name) for key, name in _TOKENS.items()}),
    )


def _tools(
    own: Iterable[ToolOutput], seen: Observations, invocations: Iterable[Invocation]
) -> list[ToolOutput]:
    """Each tool call once; what the model was told stands in the conversation."""
    outputs = {
        (each.invocation_id, item.get("call_id")): item.get("output")
        for each in invocations
        for item in each.conversation
        if item.get("type") == "function_call_output"
    }
    found = {(tool.invocation_id, tool.tool_call_id): tool for tool in own}
    for record in seen.records:
        if not isinstance(record, ToolCall):
            continue
        key = (record.invocation_id, record.tool_call_id)
        before = {} if key not in found else found[key].model_dump(exclude_none=True)
        output = {"output": outputs[key]} if key in outputs else {}
        merged = {**before, **record.model_dump(exclude_none=True), **output}
        found[key] = ToolOutput.model_validate(merged)
    return list(found.values())


def _turns(task_id: str, rollout_id: str, invocations: Iterable[Invocation], index: _Index) -> list[Turn]:
    """One for each recorded answer that an invocation refers to. Its question: what is new in the request."""
    turns: list[Turn] = []
    for invocation in invocations:
        number = known = steps = 0
        for reference in invocation.model_calls:
            call = index.find(reference)
            if call is None or not isinstance(call.response, dict):
                continue
            asked, answer, reasoning, tools = _content(call.request, call.response)
            number += 1
            question = asked[known:] or asked if isinstance(asked, list) else asked
            known = len(asked) + len(answer or ()) + len(reasoning or ()) if isinstance(asked, list) else 0
            turns.append(
                Turn(
                    invocation_id=invocation.invocation_id,
                    task_id=task_id,
                    rollout_id=rollout_id,
                    turn_no=number,
                    timestamp=call.started_at or call.completed_at or 0.0,
                    question=question,
                    answer=answer,
                    reasoning_content=reasoning,
                    step_count=steps,
                    model_calls=[_reference(call)],
                )
            )
            steps += tools
    return turns


def _content(request: Any, response: Mapping[str, Any]) -> tuple[Any, Any, Any, int]:
    """Question, answer, reasoning, and how many tools are called."""
    asked = request.get("input", request.get("messages")) if isinstance(request, dict) else request
    if isinstance(request, dict) and "input" in request:
        asked = as_items(asked)
    output = response.get("output")
    if isinstance(output, list):
        reasoning = [item for item in output if item.get("type") == "reasoning"] or None
        answer = [item for item in output if item.get("type") != "reasoning"]
        return asked, answer, reasoning, sum(item.get("type") == "function_call" for item in answer)
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = dict(choices[0].get("message") or {})
        thought = [message.pop(key, None) for key in ("reasoning_content", "reasoning")]
        reasoning = [text for text in thought if text][:1] or None
        return asked, [message], reasoning, len(message.get("tool_calls") or ())
    content = response.get("content")
    if isinstance(content, list):
        return asked, content, None, sum(block.get("type") == "tool_use" for block in content)
    return asked, None, None, 0
