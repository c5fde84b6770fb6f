"""The session store: what goes first when room is needed, what expires, what stays when it cannot close."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from starlette.exceptions import HTTPException

from gymctl.servers.resources.state import SCORED_SECONDS, SessionState, SessionStore


@dataclass
class Count(SessionState):
    value: int = 0
    closed: list[str] = field(default_factory=list)
    fails: bool = False

    async def close(self) -> None:
        if self.fails:
            raise OSError("still busy")
        self.closed.append("closed")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def store(clock: Clock, maximum: int = 3) -> SessionStore:
    return SessionStore(maximum=maximum, idle_seconds=1000, clock=clock)


def test_each_session_has_its_own_object(clock):
    sessions = store(clock)
    sessions.get("a", Count).value = 1
    assert sessions.get("a", Count).value == 1
    assert sessions.get("b", Count).value == 0


def test_looking_for_an_object_makes_none(clock):
    sessions = store(clock)
    assert sessions.find("a", Count) is None
    assert len(sessions) == 0
    made = sessions.get("a", Count)
    assert sessions.find("a", Count) is made
    assert sessions.find("a", SessionState) is None
    sessions.scored("a")
    assert sessions.find("a", Count) is made


def test_an_open_session_is_never_given_up_for_a_new_one(clock):
    sessions = store(clock)
    for name in "abc":
        sessions.get(name, Count)
    with pytest.raises(HTTPException) as refused:
        sessions.get("d", Count)
    assert refused.value.status_code == 503
    assert refused.value.headers is not None and int(refused.value.headers["Retry-After"]) >= 1
    assert "all 3 sessions" in refused.value.detail and "`max_sessions`" in refused.value.detail
    assert sessions.get("a", Count) is sessions.get("a", Count)


def test_a_scored_session_makes_room_oldest_first(clock):
    sessions = store(clock)
    kept = {name: sessions.get(name, Count) for name in "abc"}
    sessions.scored("b")
    sessions.scored("a")
    sessions.get("d", Count)
    assert sessions.get("a", Count) is kept["a"]
    sessions.get("e", Count)
    assert len(sessions) == 3
    assert sessions.get("c", Count) is kept["c"]


async def test_sweep_forgets_idle_sessions_and_closes_them(clock):
    sessions = store(clock)
    scored, idle = sessions.get("scored", Count), sessions.get("idle", Count)
    sessions.scored("scored")
    clock.now = SCORED_SECONDS + 1
    await sessions.sweep()
    assert (scored.closed, idle.closed) == (["closed"], [])
    clock.now = 999
    sessions.get("used", Count)
    clock.now = 1001
    await sessions.sweep()
    assert idle.closed == ["closed"]
    assert len(sessions) == 1


async def test_a_state_that_cannot_close_stays_and_can_be_closed_again(clock):
    sessions = store(clock)
    count = sessions.get("a", Count)
    count.fails = True
    with pytest.raises(OSError, match="still busy"):
        await sessions.close("a")
    assert sessions.get("a", Count) is count
    count.fails = False
    await sessions.close("a")
    assert count.closed == ["closed"]
    assert len(sessions) == 0


async def test_one_state_that_cannot_close_does_not_keep_the_others(clock):
    sessions = store(clock)
    sessions.get("a", Count).fails = True
    other = sessions.get("b", Count)
    await sessions.close_all()
    assert other.closed == ["closed"]


def refusal(sessions: SessionStore, session_id: str) -> str:
    with pytest.raises(HTTPException) as refused:
        sessions.get(session_id, Count)
    assert refused.value.status_code == 410
    return refused.value.detail


async def test_a_session_that_is_over_is_refused_and_one_that_is_unknown_is_new(clock):
    sessions = store(clock)
    sessions.get("idle", Count).value = 7
    sessions.get("closed", Count)
    await sessions.close("closed")
    clock.now = 1001
    await sessions.sweep()
    assert "nobody used it for 1000 s (`session_idle_seconds`)" in refusal(sessions, "idle")
    assert "it was closed" in refusal(sessions, "closed")
    assert sessions.get("unknown", Count).value == 0


async def test_a_scored_session_that_had_to_go_is_refused(clock):
    sessions = store(clock, maximum=1)
    sessions.get("a", Count)
    sessions.scored("a")
    sessions.get("b", Count)
    assert "scored" in refusal(sessions, "a")


async def test_a_session_that_is_over_can_begin_again(clock):
    sessions = store(clock)
    sessions.get("a", Count).value = 7
    await sessions.close("a")
    await sessions.begin("a")
    assert sessions.get("a", Count).value == 0


async def test_begin_takes_a_place_and_releases_what_was_there(clock):
    sessions = store(clock, maximum=1)
    earlier = sessions.get("a", Count)
    await sessions.begin("a")
    assert (earlier.closed, len(sessions)) == (["closed"], 1)
    with pytest.raises(HTTPException):
        await sessions.begin("b")


async def test_a_refused_beginning_leaves_a_session_that_is_over_refused(clock):
    sessions = store(clock, maximum=1)
    sessions.get("a", Count)
    await sessions.close("a")
    sessions.get("b", Count)
    with pytest.raises(HTTPException):
        await sessions.begin("a")
    assert "it was closed" in refusal(sessions, "a")


async def test_scored_sessions_are_not_kept_beyond_the_idle_limit(clock):
    sessions = SessionStore(maximum=3, idle_seconds=10, clock=clock)
    sessions.get("a", Count)
    sessions.scored("a")
    clock.now = 11
    await sessions.sweep()
    assert len(sessions) == 0


async def test_a_plain_close_runs_beside_the_event_loop(clock):
    import threading

    @dataclass
    class Blocking(SessionState):
        thread: int = 0

        def close(self) -> None:
            self.thread = threading.get_ident()

    sessions = store(clock)
    state = sessions.get("a", Blocking)
    await sessions.close("a")
    assert state.thread not in (0, threading.get_ident())


async def test_a_release_that_fails_in_whatever_way_keeps_no_other_from_its_own(clock):
    class Odd(Exception):
        """As the errors of client libraries, which extend nothing but Exception."""

    @dataclass
    class Stuck(SessionState):
        async def close(self) -> None:
            raise Odd("the sandbox is gone")

    sessions = store(clock)
    sessions.get("stuck", Stuck)
    other = sessions.get("other", Count)
    clock.now = 1001
    await sessions.sweep()
    assert other.closed == ["closed"]
    sessions.get("stuck too", Stuck)
    another = sessions.get("another", Count)
    await sessions.close_all()
    assert another.closed == ["closed"]
