"""The cookie's value is Starlette's: base64 JSON under an itsdangerous timestamp signature."""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode

from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import TimestampSigner

from gymctl.servers.stack.session import SessionCookie

COOKIE = SessionCookie("Weather___wx_tools", "secret")


def scope(line: str) -> dict:
    return {"type": "http", "headers": [(b"cookie", line.encode("latin-1"))]}


def test_value_can_be_read_with_starlettes_scheme():
    session = {"session_id": "abc", "agent_session_id": "s1"}
    payload = TimestampSigner("secret").unsign(COOKIE.value(session), max_age=60)
    assert json.loads(b64decode(payload)) == session


def test_header_has_the_attributes_of_the_contract():
    name, value = COOKIE.header({"session_id": "abc"})
    assert name == b"set-cookie"
    assert value.startswith(b"Weather___wx_tools=")
    assert value.endswith(b"; path=/; Max-Age=1209600; httponly; samesite=lax")


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3), st.text(max_size=20))
def test_a_session_comes_back_out_of_a_crowded_jar(extra, session_id):
    session = {**extra, "session_id": session_id}
    value = COOKIE.value(session).decode()
    line = f"SimpleAgent___a=x.y.z; Weather___wx_tools={value}; XWeather___wx_tools=1"
    assert COOKIE.read(scope(line)) == session


def test_forged_foreign_and_missing_cookies_start_a_new_session():
    stranger = SessionCookie("Weather___wx_tools", "another secret").value({"session_id": "theirs"}).decode()
    listing = TimestampSigner("secret").sign(b64encode(b"[1]")).decode()
    nameless = TimestampSigner("secret").sign(b64encode(b"{}")).decode()
    for value in ("", "nonsense", stranger, listing, nameless, "ä.b.c"):
        session = COOKIE.read(scope(f"Weather___wx_tools={value}"))
        assert uuid.UUID(session["session_id"]).version == 4
    assert COOKIE.read({"headers": []})["session_id"] != COOKIE.read({"headers": []})["session_id"]
