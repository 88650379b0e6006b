"""Refused requests, notifications and responses are charged to the caller; refused requests are audited as well."""

import json
from typing import Any

import pytest

from gateway.contract import MODERN
from tests.gateway.fakes import FakeBackend, FakeResponseWriter, Rig

LEGACY = {"mcp-protocol-version": "2025-11-25"}
NEW = {"mcp-protocol-version": MODERN}


async def send(rig: Rig, kind: str, session: str, *, id: str | None = None) -> FakeResponseWriter:
    """Send one message of a kind that is answered before it becomes a call."""
    headers: dict[str, Any] = {"mcp-session-id": session, "x-correlation-id": id}
    match kind:
        case "bad JSON, handshake":
            return await rig.request(b"{nope", {**headers, **LEGACY})
        case "bad JSON, modern":
            return await rig.request(b"{nope", {**headers, **NEW})
        case "unknown method, handshake":
            return await rig.legacy(session, "nope/nope", headers=headers)
        case "unknown method, modern":
            return await rig.modern("nope/nope", headers=headers)
        case "headers that disagree":
            return await rig.modern("tools/call", {"name": "lab_echo"}, headers={**headers, "mcp-name": "other"})
        case "no such session":
            return await rig.legacy("v1.nope", "ping", headers={"x-correlation-id": id})
        case "no session":
            return await rig.legacy(None, "ping", headers={"x-correlation-id": id})
        case "no such endpoint":
            return await rig.legacy(session, "ping", path="/mcp/nope", headers=headers)
        case "a wrong verb":
            return await rig.request(verb="PUT", headers=headers)
        case "a wrong type":
            return await rig.request(b"{}", {**headers, "content-type": "text/plain"})
        case "a notification, handshake":
            return await rig.legacy(session, "notifications/initialized", id=None, headers=headers)
        case "a notification, modern":
            body = json.dumps({"jsonrpc": "2.0", "method": "notifications/x"}).encode()
            return await rig.request(body, {**headers, **NEW})
        case _:
            body = json.dumps({"jsonrpc": "2.0", "id": "gth.w9.1", "result": {}}).encode()
            return await rig.request(body, headers)


REFUSED = {
    "bad JSON, handshake": (400, -32700),
    "bad JSON, modern": (400, -32700),
    "unknown method, handshake": (200, -32601),
    "unknown method, modern": (404, -32601),
    "headers that disagree": (400, -32020),
    "no such session": (404, -32001),
    "no session": (400, -32600),
    "no such endpoint": (404, -32601),
    "a wrong verb": (405, -32600),
    "a wrong type": (415, -32600),
}
COUNTED = ("a notification, handshake", "a notification, modern", "an answer to nothing")


@pytest.mark.parametrize("kind", REFUSED)
async def test_refused_request_is_charged_audited_and_traced_with_its_correlation_id(kind: str) -> None:
    async with Rig(FakeBackend(), rate="4/hour") as rig:
        session = await rig.session()
        rig.audit_log.rows.clear()
        rig.traced_calls.clear()
        for _ in range(3):
            response = await send(rig, kind, session, id="mine-1")
            assert (response.status, response.json["error"]["code"]) == REFUSED[kind]
            assert response.headers["x-correlation-id"] == "mine-1"
        limited = await send(rig, kind, session, id="mine-1")
        # A request gets a JSON-RPC error with status 200; other messages get the HTTP status.
        assert (limited.status, limited.json["error"]["code"]) in {(200, 429), (200, -32043), (429, 429), (429, -32043)}
        assert limited.json["error"]["data"]["kind"] == "rate_limited"
        assert int(limited.headers["retry-after"]) > 0
        assert [row[11] for row in rig.audit_log.rows] == [f"error:{REFUSED[kind][1]}"] * 3 + ["rate_limited"]
        assert [call.id for call in rig.traced_calls] == ["mine-1"] * 4
        assert {call.method for call in rig.traced_calls} <= {"_OTHER", "ping", "tools/call"}


@pytest.mark.parametrize("kind", COUNTED)
async def test_notification_or_response_is_charged_and_audited_only_when_refused(kind: str) -> None:
    async with Rig(FakeBackend(), rate="4/hour") as rig:
        session = await rig.session()
        rig.audit_log.rows.clear()
        for _ in range(3):
            assert (await send(rig, kind, session)).status == 202
        assert rig.audit_log.rows == []
        limited = await send(rig, kind, session)
        assert (limited.status, limited.json["error"]["data"]["kind"]) == (429, "rate_limited")
        assert [row[11] for row in rig.audit_log.rows] == ["rate_limited"]
        assert rig.session_store.answers == []
