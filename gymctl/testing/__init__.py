"""What the author of an environment imports in tests of their own.

serving        one server class, over real HTTP inside the test's process; no engine, no part file
ScriptedModel  the model behind it: answers written in the test, requests kept for assertions

`gymctl.testing.stack` has GymStack, a whole project in containers, and `gymctl.testing.plugin` the fixtures.
They are not imported here: what is needed for one server is light. Comes with `pip install gymctl[testing]`.
"""

from gymctl.testing.scripted import Asked, Fault, ScriptedModel, call, fault, message
from gymctl.testing.serving import Served, Session, serving

__all__ = [
    "Asked",
    "Fault",
    "ScriptedModel",
    "Served",
    "Session",
    "call",
    "fault",
    "message",
    "serving",
]
