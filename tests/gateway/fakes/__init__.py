"""Fakes of the contract's protocols, and `Rig`: a gateway without sockets that is built from the real components."""

from tests.gateway.fakes.backend import Answer, FakeBackend, FakeWire, echo
from tests.gateway.fakes.callers import ALICE, BOB, ECHO, HANDSHAKE, POLICIES, SCOPES, SERVER_INFO
from tests.gateway.fakes.calls import a_call, a_route
from tests.gateway.fakes.response_writer import FakeResponseWriter
from tests.gateway.fakes.rig import Rig
from tests.gateway.fakes.stores import FakeApprovals, FakeAuditLog, FakeSessionStore
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
    "FakeAuditLog",
    "FakeBackend",
    "FakeResponseWriter",
    "FakeSessionStore",
    "FakeWire",
    "Rig",
    "a_call",
    "a_route",
    "echo",
    "until",
]
