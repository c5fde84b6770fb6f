"""Counter: every session has a count of its own, two tools change and read it, the final count is scored."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from gymctl.servers import ResourcesServer, SessionState, VerifyRequest, VerifyResponse, tool


@dataclass
class Count(SessionState):
    value: int = 0


class CounterRow(BaseModel):
    initial_count: int = 0


class CounterTask(VerifyRequest):
    expected_count: int


class CounterVerdict(VerifyResponse):
    final_count: int


class Success(BaseModel):
    success: bool = True


class CounterValue(BaseModel):
    count: int


class Counter(ResourcesServer):
    """A session starts at the row's `initial_count` and should end at its `expected_count`."""

    reverify_mode = "unsupported"

    async def seed(self, row: CounterRow, count: Count) -> None:
        count.value = row.initial_count

    @tool
    async def increment_counter(self, amount: int, count: Count) -> Success:
        """Add an amount, which may be negative, to the counter."""
        count.value += amount
        return Success()

    @tool
    async def get_counter_value(self, count: Count) -> CounterValue:
        """Get the current value of the counter."""
        return CounterValue(count=count.value)

    async def verify(self, request: CounterTask, count: Count) -> CounterVerdict:
        is_right = count.value == request.expected_count
        return CounterVerdict.of(request, reward=1.0 if is_right else 0.0, final_count=count.value)


app = Counter.app()
