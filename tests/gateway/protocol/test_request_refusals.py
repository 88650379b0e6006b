"""What the door refuses, and what is no request, is charged to whoever sends it; what it refuses is also on record."""

import json
from typing import Any

import pytest

from gateway.contract import MODERN
from tests.gateway.fakes import FakeBackend, Paper, Rig

LEGACY = {"mcp-protocol-version": "2025-11-25"}
NEW = {"mcp-protocol-version": MODERN}


async def sent(rig: Rig, what: str, session: str, *, id: str | None = None) -> Paper:
    """One message of each kind that the door answers by itself."""
    kept: dict[str, Any] = {"mcp-session-id": session, "x-correlation-id": id}
    match what:
        case "bad JSON, handshake":
            return await rig.request(b"{nope", {**kept, **LEGACY})
        case "bad JSON, modern":
            return await rig.request(b"{nope", {**kept, **NEW})
        case "unknown method, handshake":
            return await rig.legacy(session, "nope/nope", headers=kept)
        case "unknown method, modern":
            return await rig.modern("nope/nope", headers=kept)
        case "headers that disagree":
            return await rig.modern("tools/call", {"name": "lab_echo"}, headers={**kept, "mcp-name": "other"})
        case "no such session":
            return await rig.legacy("v1.nope", "ping", headers={"x-correlation-id": id})
        case "no session":
            return await rig.legacy(None, "ping", headers={"x-correlation-id": id})
        case "no such endpoint":
            return await rig.legacy(session, "ping", path="/mcp/nope", headers=kept)
        case "a wrong verb":
            return await rig.request(verb="PUT", headers=kept)
        case "a wrong type":
            return await rig.request(b"{}", {**kept, "content-type": "text/plain"})
        case "a notification, handshake":
            return await rig.legacy(session, "notifications/initialized", id=None, headers=kept)
        case "a notification, modern":
            body = json.dumps({"jsonrpc": "2.0", "method": "notifications/x"}).encode()
            return await rig.request(body, {**kept, **NEW})
        case _:
            body = json.dumps({"jsonrpc": "2.0", "id": "gth.w9.1", "result": {}}).encode()
            return await rig.request(body, kept)


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


@pytest.mark.parametrize("what", REFUSED)
async def test_what_the_door_refuses_is_charged_audited_and_told_under_its_correlation_id(what: str) -> None:
    async with Rig(FakeBackend(), calls="4/hour") as rig:
        session = await rig.session()
        rig.log.rows.clear()
        rig.told.clear()
        for _ in range(3):
            paper = await sent(rig, what, session, id="mine-1")
            assert (paper.status, paper.json["error"]["code"]) == REFUSED[what]
            assert paper.headers["x-correlation-id"] == "mine-1"
        spent = await sent(rig, what, session, id="mine-1")
        # A request is told so as every other; what is none, by the status.
        assert (spent.status, spent.json["error"]["code"]) in {(200, 429), (200, -32043), (429, 429), (429, -32043)}
        assert spent.json["error"]["data"]["kind"] == "rate_limited"
        assert int(spent.headers["retry-after"]) > 0
        assert [row[11] for row in rig.log.rows] == [f"error:{REFUSED[what][1]}"] * 3 + ["rate_limited"]
        assert [call.id for call in rig.told] == ["mine-1"] * 4
        assert {call.method for call in rig.told} <= {"_OTHER", "ping", "tools/call"}


@pytest.mark.parametrize("what", COUNTED)
async def test_what_is_no_request_is_charged_and_on_record_only_when_refused(what: str) -> None:
    async with Rig(FakeBackend(), calls="4/hour") as rig:
        session = await rig.session()
        rig.log.rows.clear()
        for _ in range(3):
            assert (await sent(rig, what, session)).status == 202
        assert rig.log.rows == []
        spent = await sent(rig, what, session)
        assert (spent.status, spent.json["error"]["data"]["kind"]) == (429, "rate_limited")
        assert [row[11] for row in rig.log.rows] == ["rate_limited"]
        assert rig.rows.answers == []
