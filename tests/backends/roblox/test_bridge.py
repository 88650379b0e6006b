"""The Studio bridge over real sockets: sessions, handshake, matching of responses, reconnecting Studios."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from backends.roblox.bridge import StudioBridge
from gateway.contract import Caller
from gateway.edge.module_routes import ModuleRoutes
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import Fault, Kind
from gateway.state.bus import MemoryBus
from gateway.upstream.peers.service import BackendPeers, PeerService
from tests.backends.roblox.fake_studio import FakeStudio, Json
from tests.in_process_server import InProcessServer

SCOPES = frozenset({"bridge:roblox"})
CALLERS = {
    "alice": Caller("red", "alice", scopes=SCOPES, credential="a"),
    "bob": Caller("red", "bob", scopes=SCOPES, credential="b"),
    "eve": Caller("blue", "eve", scopes=SCOPES, credential="e"),
    "powerless": Caller("red", "zed", credential="z"),
}
ALICE, EVE = CALLERS["alice"], CALLERS["eve"]


async def _authenticate(headers: Mapping[str, str], address: str) -> Caller:
    caller = CALLERS.get(headers.get("authorization", "").removeprefix("Bearer "))
    if caller is None:
        raise Fault(Kind.UNAUTHENTICATED, "The credential is not valid.")
    return caller


@dataclass
class HostOfPeers:
    """The part of a `Host` that the bridge uses."""

    peers: BackendPeers


@dataclass
class Relay:
    base: str
    peers: BackendPeers

    async def polling(self, yes: bool) -> None:
        while self.peers.list(ALICE)[0]["polling"] is not yes:
            await asyncio.sleep(0.005)

    async def ask(self, caller: Caller = ALICE, peer: str | None = None, timeout: float = 10, **payload: Any) -> Json:
        return await self.peers.request(caller, peer, {"operation": "x.y", "payload": payload}, timeout)


@asynccontextmanager
async def _serving(port: int = 0, reconnect_grace: float = 0.2) -> AsyncIterator[Relay]:
    peers = PeerService(MemoryBus(), reconnect_grace=reconnect_grace).for_backend("roblox", "Studio")
    routes = ModuleRoutes(_authenticate, StreamExpiry())
    host: Any = HostOfPeers(peers)
    routes.replace({"roblox": StudioBridge(host).routes()})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found = routes.find(scope)
        assert found is not None
        await found(scope, receive, send)

    server = InProcessServer(uvicorn.Config(app, port=port, log_config=None, access_log=False, lifespan="off"))
    async with server.running(force=True) as bound:
        yield Relay(f"http://127.0.0.1:{bound}", peers)


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    async with _serving() as running:
        yield running


async def _silent(request: Json) -> Json | None:
    return None


async def test_response_payload_is_returned_unchanged(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        answer = await relay.ask(n=1)
        assert answer["payload"] == {"operation": "x.y", "n": 1}
        request = studio.requests[0]
        assert {"requestId", "correlationId", "operation", "timestamp", "idempotencyKey", "payload"} == request.keys()
        assert request["idempotencyKey"] == request["requestId"]


async def test_handshake_returns_the_studios_own_token(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        auth, hello = studio.received
        assert auth["payload"] == {"token": "alice", "clientName": "gatehouse"}
        assert hello["payload"] == {"protocolVersion": "1.1", "clientName": "gatehouse"}
        peer = relay.peers.list(ALICE)[0]
        assert peer["connected"] is True
        assert peer["capabilities"] == ["typed-values.v2", "instance-id", "idempotency-key"]


async def test_bearer_header_authenticates_a_studio(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", authorization="Bearer alice") as studio:
        await studio.wait_until_connected()
        assert (await relay.ask())["success"] is True


async def test_responses_are_matched_to_requests_in_any_order(relay: Relay) -> None:
    held: list[Json] = []

    async def backwards(request: Json) -> Json | None:
        held.append(request)
        if len(held) == 20:
            for each in reversed(held):
                await studio.send({"requestId": each["requestId"], "success": True, "payload": each["payload"]})
        return None

    async with FakeStudio(relay.base, "alice", answer=backwards) as studio:
        await studio.wait_until_connected()
        answers = await asyncio.gather(*(relay.ask(n=n) for n in range(20)))
    assert [answer["payload"]["n"] for answer in answers] == list(range(20))


async def test_timed_out_request_does_not_disturb_the_next_thousand(relay: Relay) -> None:
    late: list[Json] = []

    async def answer(request: Json) -> Json | None:
        if request["payload"].get("late"):
            late.append(request)
            return None
        if late:
            first = late.pop()
            assert await studio.send({"requestId": first["requestId"], "success": True, "payload": {"n": -1}}) == 204
        return {"success": True, "payload": request["payload"]}

    async with FakeStudio(relay.base, "alice", answer=answer) as studio:
        await studio.wait_until_connected()
        with pytest.raises(Fault) as caught:
            await relay.ask(timeout=0.1, late=True)
        assert caught.value.kind is Kind.TIMEOUT
        for start in range(0, 1000, 50):
            batch = await asyncio.gather(*(relay.ask(n=n) for n in range(start, start + 50)))
            assert [each["payload"]["n"] for each in batch] == list(range(start, start + 50))
        assert relay.peers.list(ALICE)[0]["consecutive_failures"] == 0


async def test_timed_out_request_is_not_delivered_to_the_studio(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _open_session(http)
        with pytest.raises(Fault) as caught:
            await relay.ask(timeout=0.05)
        assert caught.value.kind is Kind.UNAVAILABLE  # not fetched, so not executed
        assert (await http.get(f"/v1/bridge/session/{session}/read?timeout_ms=0")).status_code == 204


async def test_call_fails_when_the_studio_is_killed_and_succeeds_after_it_reconnects(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", answer=_silent) as studio:
        await studio.wait_until_connected()
        pending = asyncio.create_task(relay.ask(timeout=30))
        while not studio.requests:
            await studio.arrived.wait()
            studio.arrived.clear()
        await relay.polling(True)
        await studio.kill()
        with pytest.raises(Fault, match="connection was lost") as caught:
            await pending
        assert (caught.value.kind, caught.value.retryable) == (Kind.UNAVAILABLE, False)
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        assert (await relay.ask())["success"] is True


async def test_interrupted_poll_loses_no_message(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _open_session(http)
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"/v1/bridge/session/{session}/read", timeout=0.05)
        await relay.polling(False)
        pending = asyncio.create_task(relay.ask())
        line = (await http.get(f"/v1/bridge/session/{session}/read")).json()["line"]
        await _write(http, session, {"requestId": json.loads(line)["requestId"], "success": True, "payload": {}})
        assert (await pending)["success"] is True


async def test_studio_can_reconnect_after_the_gateway_restarts() -> None:
    async with _serving() as first:
        port = int(first.base.rpartition(":")[2])
        async with httpx.AsyncClient(verify=False, base_url=first.base, headers={"x-gox-auth": "alice"}) as http:
            session = await _open_session(http)
    async with _serving(port) as second:
        async with httpx.AsyncClient(verify=False, base_url=second.base, headers={"x-gox-auth": "alice"}) as http:
            # On 404 the plugin opens a new session.
            assert (await http.get(f"/v1/bridge/session/{session}/read")).status_code == 404
            await _open_session(http)
        assert len(second.peers.list(ALICE)) == 1


async def test_same_key_and_name_replace_a_session_and_another_name_adds_one(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", name="one") as one, FakeStudio(relay.base, "alice", name="two") as two:
        await one.wait_until_connected()
        await two.wait_until_connected()
        assert {peer["name"] for peer in relay.peers.list(ALICE)} == {"one", "two"}
        async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
            old, opened = one.session, one.opened
            await http.post("/v1/bridge/session", json={"clientName": "one"})
            while one.opened == opened:  # its poll gets 404, and it opens a new session
                await asyncio.sleep(0.005)
            assert one.session != old
        assert len(relay.peers.list(ALICE)) == 2


async def test_key_has_at_most_32_studios_and_the_oldest_is_removed(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        for number in range(34):
            await http.post("/v1/bridge/session", json={"clientName": f"s{number}"})
    assert [peer["name"] for peer in relay.peers.list(ALICE)] == [f"s{number}" for number in range(2, 34)]


async def test_response_for_a_stopped_worker_is_dropped(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        assert await studio.send({"requestId": "dead.1.x", "success": True, "payload": {}}) == 204


async def test_studios_of_two_tenants_are_isolated(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as own, FakeStudio(relay.base, "eve") as foreign:
        await own.wait_until_connected()
        await foreign.wait_until_connected()
        assert [peer["id"] for peer in relay.peers.list(EVE)] == [foreign.session]
        with pytest.raises(Fault):
            await relay.ask(EVE, peer=own.session)
        await asyncio.gather(*(relay.ask(caller, n=n) for n in range(20) for caller in (ALICE, EVE)))
        assert len(own.requests) == len(foreign.requests) == 20


async def test_studio_cannot_answer_requests_of_another(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", answer=_silent) as own, FakeStudio(relay.base, "eve") as foreign:
        await own.wait_until_connected()
        await foreign.wait_until_connected()
        pending = asyncio.create_task(relay.ask(timeout=5))
        while not own.requests:
            await own.arrived.wait()
            own.arrived.clear()
        request_id = own.requests[0]["requestId"]
        assert await foreign.send({"requestId": request_id, "success": True, "payload": {"forged": True}}) == 204
        assert await own.send({"requestId": request_id, "success": True, "payload": {"forged": False}}) == 204
        assert (await pending)["payload"] == {"forged": False}


@pytest.mark.parametrize("who", ["eve", "bob"])
async def test_session_rejects_every_other_key(relay: Relay, who: str) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _open_session(http)
        other = {"x-gox-auth": who}
        base_path = f"/v1/bridge/session/{session}"
        assert (await http.get(f"{base_path}/read", headers=other)).status_code == 404
        assert (await http.post(f"{base_path}/write", json={"line": "{}"}, headers=other)).status_code == 404
        assert (await http.delete(f"{base_path}/close", headers=other)).status_code == 404
        assert (await http.delete(f"{base_path}/close")).status_code == 204
        assert (await http.delete(f"{base_path}/close")).status_code == 404


@pytest.mark.parametrize(
    ("verb", "path", "headers", "body", "status"),
    [
        ("POST", "", {}, "{}", 401),
        ("POST", "", {"x-gox-auth": "nobody"}, "{}", 401),
        ("POST", "", {"x-gox-auth": "powerless"}, "{}", 403),
        ("POST", "", {"x-gox-auth": "alice"}, "", 200),
        ("POST", "", {"x-gox-auth": "alice"}, "[]", 400),
        ("POST", "", {"x-gox-auth": "alice"}, '{"clientName": 5}', 400),
        ("GET", "", {"x-gox-auth": "alice"}, "", 405),
        ("POST", "/unknown/read", {"x-gox-auth": "alice"}, "", 405),
        ("GET", "/unknown/read", {"x-gox-auth": "alice"}, "", 404),
        ("POST", "/unknown/write", {"x-gox-auth": "alice"}, '{"line": "{}"}', 404),
        ("DELETE", "/unknown/close", {"x-gox-auth": "alice"}, "", 404),
    ],
)
async def test_routes_return_the_documented_status(
    relay: Relay, verb: str, path: str, headers: dict[str, str], body: str, status: int
) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base) as http:
        response = await http.request(verb, f"/v1/bridge/session{path}", headers=headers, content=body)
        assert response.status_code == status, response.text


@pytest.mark.parametrize(
    "line",
    [
        *("", "nonsense", "[]", "{}", "[" * 100_000),
        '{"requestId": 5, "success": true}',
        '{"requestId": "r", "success": false}',
        '{"requestId": "r", "success": false, "error": {"code": "X"}}',
    ],
)
async def test_malformed_response_line_is_rejected(relay: Relay, line: str) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _open_session(http)
        response = await http.post(f"/v1/bridge/session/{session}/write", json={"line": line})
        assert response.status_code == 400


async def test_plugin_without_hello_is_accepted_without_capabilities(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        error = {"code": "NOT_FOUND", "message": "operation bridge.hello is not supported"}
        await _open_session(http, hello={"success": False, "error": error})
        peer = relay.peers.list(ALICE)[0]
        assert (peer["connected"], peer["capabilities"]) == (True, [])


async def test_reloaded_plugin_gets_a_new_handshake(relay: Relay) -> None:
    forgetful = [True]

    async def answer(request: Json) -> Json | None:
        if forgetful.pop() if forgetful else False:
            return {"success": False, "error": {"code": "ACCESS_DENIED", "message": "bridge.hello required"}}
        return {"success": True, "payload": {}}

    async with FakeStudio(relay.base, "alice", answer=answer) as studio:
        await studio.wait_until_connected()
        assert (await relay.ask())["success"] is True
        assert [each["operation"] for each in studio.received].count("bridge.hello") == 2


async def test_call_without_a_connected_studio_is_unavailable(relay: Relay) -> None:
    with pytest.raises(Fault) as caught:
        await relay.ask()
    assert (caught.value.kind, caught.value.category) == (Kind.UNAVAILABLE, "platform")


async def _open_session(http: httpx.AsyncClient, hello: Json | None = None) -> str:
    """Open a session and complete its handshake."""
    session = (await http.post("/v1/bridge/session", json={"clientName": "hand"})).json()["sessionId"]
    ok: Json = {"success": True, "payload": {"protocolVersion": "1.1", "capabilities": []}}
    for answer in (ok, hello or ok):
        line = (await http.get(f"/v1/bridge/session/{session}/read")).json()["line"]
        await _write(http, session, {"requestId": json.loads(line)["requestId"], **answer})
    return session


async def _write(http: httpx.AsyncClient, session: str, answer: Json) -> None:
    written = await http.post(f"/v1/bridge/session/{session}/write", json={"line": json.dumps(answer)})
    assert written.status_code == 204, written.text
