"""Callers, policies and a minimal tool definition for tests."""

from gateway.contract import (
    Caller,
    Json,
)
from gateway.policy.active_policies import ActivePolicies, load
from gateway.policy.source import SHIPPED

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
SCOPES = frozenset({"mcp:list", "mcp:call", "mcp:call:write"})
ALICE = Caller("acme", "alice", scopes=SCOPES, credential="key1")
BOB = Caller("acme", "bob", scopes=SCOPES, credential="key2")
ECHO: Json = {"name": "echo", "inputSchema": {"type": "object"}}
SERVER_INFO: Json = {"name": "gatehouse", "version": "0"}
POLICIES = ActivePolicies(SHIPPED, load(SHIPPED), ())
"""The policies that ship with the gateway."""
