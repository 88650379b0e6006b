"""Small stand-ins for the Protocols of the contract, and a gateway without sockets made of the real rooms."""

from tests.gateway.fakes.backend import Answer, FakeBackend, FakeWire, echo
from tests.gateway.fakes.callers import ALICE, BOB, ECHO, HANDSHAKE, POLICIES, SCOPES, SERVER_INFO
from tests.gateway.fakes.calls import a_call, a_route
from tests.gateway.fakes.response_writer import Paper
from tests.gateway.fakes.rig import Rig
from tests.gateway.fakes.rows import FakeApprovals, FakeLog, FakeRows
from tests.gateway.fakes.time import WAIT, Clock, until

__all__ = [
    "ALICE",
    "BOB",
    "ECHO",
    "HANDSHAKE",
    "POLICIES",
    "SCOPES",
    "SERVER_INFO",
    "WAIT",
    "Answer",
    "Clock",
    "FakeApprovals",
    "FakeBackend",
    "FakeLog",
    "FakeRows",
    "FakeWire",
    "Paper",
    "Rig",
    "a_call",
    "a_route",
    "echo",
    "until",
]
